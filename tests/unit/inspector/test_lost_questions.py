"""What was asked in a turn that left nothing in the thread stands beside its error."""

from helix_temporal import Backends, Settings
from helix_temporal.inspector import create_inspector
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import CreateSession, ErrorInfo
from helix_temporal.models.streams import RunStarted
from tests.unit.inspector._asking import holding_link


async def test_the_question_whose_model_call_failed_is_on_the_page() -> None:
    """As text: it is a stranger's.  The error alone does not say what brought it about."""
    backends = Backends(Settings())
    assert backends.sessions is not None
    assert backends.streams is not None
    await backends.sessions.create_session("s1", CreateSession())
    await backends.sessions.start_run("s1", NewRun(run_id="r1"))
    writer = await backends.streams.create_writer("s1", agent_id="r1")
    await writer.write(RunStarted(turn=1, texts=("Where is <b>it</b>?",)))
    failed = RunChange(status=RunStatus.FAILED, error=ErrorInfo(type="ValueError", message="no"))
    await backends.sessions.update_run("s1", "r1", failed)
    async with holding_link(create_inspector(backends)) as browser:
        page = await browser.get("/sessions/s1")
    await backends.close()
    attempt = page.text.partition('id="attempt-1"')[2].partition("</details>")[0]
    assert "Where is &lt;b&gt;it&lt;/b&gt;?" in attempt
    assert "ValueError" in attempt
