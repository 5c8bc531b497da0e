"""Every released workflow history replays on the newest code, and a change that breaks one is noticed."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal._converter import HelixPayloadConverter
from helix_temporal.errors import HelixError
from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.plugin import HelixPlugin
from helix_temporal.workflows import WORKFLOWS, AgentSession
from tests.replay._wire import HERE
from tests.replay.record import ALL, load

HISTORIES = sorted((HERE / "histories").glob("*/*.json"))

HOW = (
    "a workflow of a released version would get stuck: keep the old behaviour for old histories with "
    "workflow.patched (only histories of a version that was never released may be recorded anew)"
)


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", HISTORIES, ids=name_of)
async def test_a_stored_history_replays(path: Path) -> None:
    """Sessions that were started by an older worker go on with a newer one."""
    replayer = Replayer(workflows=[], plugins=[HelixPlugin()])
    result = await replayer.replay_workflow(load(path), raise_on_replay_failure=False)
    assert result.replay_failure is None, f"{HOW}: {result.replay_failure}"


def test_every_kind_of_history_is_stored_for_every_version() -> None:
    """A kind that is missing is a kind that may break unseen."""
    versions = {path.parent.name for path in HISTORIES}
    assert "0.1.0" in versions
    for version in versions:
        kinds = {path.stem.rsplit("-", 1)[0] for path in HISTORIES if path.parent.name == version}
        assert kinds >= set(ALL), version


def test_stored_histories_name_no_machine() -> None:
    """They are published with the source."""
    for path in HISTORIES:
        text = path.read_text()
        assert "/home/" not in text
        assert "/work" not in text
        assert ".py" not in text
        assert set(_identities(json.loads(text))) <= {"recorder"}


def _identities(value: object) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _identities(each)]
    if not isinstance(value, dict):
        return []
    own = [value["identity"]] if "identity" in value else []
    return own + [found for each in value.values() for found in _identities(each)]


def _plain() -> WorkflowHistory:
    return load(HERE / "histories" / "0.1.0" / "plain-0.json")


@workflow.defn(name="helix.session")
class Hasty:
    """The session workflow with one incompatible change: it waits before it opens."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._session = AgentSession(given)

    @workflow.run
    async def run(self, given: SessionInput) -> SessionResult:
        """Wait, then serve."""
        await workflow.sleep(1)
        return await self._session.run()


async def test_an_incompatible_change_is_noticed() -> None:
    """A check that cannot fail proves nothing."""
    replayer = Replayer(
        workflows=[Hasty],
        data_converter=DataConverter(payload_converter_class=HelixPayloadConverter),
        workflow_runner=UnsandboxedWorkflowRunner(),
        workflow_failure_exception_types=[HelixError],
    )
    result = await replayer.replay_workflow(_plain(), raise_on_replay_failure=False)
    assert isinstance(result.replay_failure, workflow.NondeterminismError)


async def test_a_changed_name_of_an_activity_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the order of commands stays the same."""
    history = _plain()
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_type.name += ".v2"
    replayer = Replayer(workflows=[], plugins=[HelixPlugin()])
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    assert isinstance(result.replay_failure, workflow.NondeterminismError)


def test_the_plugin_gives_a_replayer_what_it_gives_a_worker() -> None:
    """Converter, workflows, pass-through and failure types: a replay sees what the worker saw."""
    config: dict[str, Any] = dict(Replayer(workflows=[], plugins=[HelixPlugin()]).config(active_config=True))
    assert config["data_converter"].payload_converter_class is HelixPayloadConverter
    assert set(config["workflows"]) == set(WORKFLOWS)
    assert HelixError in config["workflow_failure_exception_types"]
    runner = config["workflow_runner"]
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert "helix_temporal" in runner.restrictions.passthrough_modules


async def test_a_replayer_opens_no_store() -> None:
    """Histories are replayed in CI and on laptops, without servers."""
    plugin = HelixPlugin()
    await Replayer(workflows=[], plugins=[plugin]).replay_workflow(_plain())
    assert plugin._backends is None
