"""Two numbers for a session: what was paid, and what is in the thread."""

import asyncio

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.agents import ModelRequest, ModelResponse
from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.messages import Usage
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from tests.workflows._desk import Desk, Gate, calls
from tests.workflows._roll_out import worker_processes
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_states import PAIRINGS, place, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]

ONE = Usage(input_tokens=10, output_tokens=1)


class Meter:
    """A model that counts the answers which it gave."""

    def __init__(self, *then: ModelResponse | str) -> None:
        self.given = 0

    def answer(self, text: str) -> ModelResponse:
        self.given += 1
        return ModelResponse(content=text, usage=ONE)

    def tools(self) -> ModelResponse:
        self.given += 1
        return calls("x")

    def script(self, request: ModelRequest) -> ModelResponse:
        """Ask for a tool when the user says so, otherwise answer."""
        wants = request.messages[-1].role == "user" and request.messages[-1].text.startswith("tool")
        return self.tools() if wants else self.answer(request.messages[-1].text)


async def agrees(stand: Stand, sid: str, meter: Meter) -> None:
    """Each number is what its name says."""
    used = await stand.sessions.session(sid).get_usage()
    answers = [each for each in await stand.messages(sid) if each.role == "assistant"]
    assert used.steps == used.in_thread.calls == len(answers)
    assert used.in_thread.tokens == sum((each.usage for each in answers if each.usage), start=Usage())
    assert used.paid.calls == meter.given
    assert used.paid.tokens == Usage(input_tokens=10 * meter.given, output_tokens=meter.given)


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_what_was_paid_and_what_is_in_the_thread_are_told_apart(place: Settings, sid: str) -> None:
    """Cancelled, terminated, aborted and taken back: their answers were paid for, and are gone."""
    desk, meter = Desk(), Meter()
    desk.scripts[sid] = meter.script
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await agrees(stand, sid, meter)
        for end in ("terminate", "cancel", "abort"):
            await _ended_in_a_tool(stand, desk, sid, end)
            await stand.sessions.ask(sid, f"after {end}", agent="main", timeout=30)
            await agrees(stand, sid, meter)
        await stand.sessions.ask(sid, "tool two", agent="main")
        await stand.sessions.session(sid, agent="main").rewind_to_turn(-1)
        await agrees(stand, sid, meter)
        used = await stand.sessions.session(sid).get_usage()
        assert used.paid.calls > used.in_thread.calls


async def test_a_call_that_does_not_tell_what_it_used_counts_in_neither_number(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Many models that people write report no usage; their answers are counted by ``steps``."""
    told = ModelResponse("told", usage=ONE)
    desk.scripts[sid] = lambda request: (
        told if request.messages[-1].text == "tell" else ModelResponse("silent")
    )
    await stand.sessions.ask(sid, "go", agent="main")
    used = await stand.sessions.session(sid).get_usage()
    assert (used.steps, used.in_thread.calls, used.paid.calls) == (1, 0, 0)
    await stand.sessions.ask(sid, "tell", agent="main")
    used = await stand.sessions.session(sid).get_usage()
    assert (used.steps, used.in_thread.calls, used.paid.calls) == (2, 1, 1)


async def _ended_in_a_tool(stand: Stand, desk: Desk, sid: str, how: str) -> None:
    """A turn whose first answer is in the thread, and whose tool runs when it is ended."""
    gate = Gate()
    desk.acts[sid] = lambda what, context: gate.passing()
    asking = asyncio.create_task(stand.sessions.ask(sid, f"tool {how}", agent="main", timeout=30))
    await gate.reached.wait()
    if how == "abort":
        assert await stand.sessions.session(sid).stop(abort=True)
    else:
        handle = stand.handle(sid)
        await (handle.cancel() if how == "cancel" else handle.terminate())
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    gate.opened.set()
    await asyncio.gather(asking, return_exceptions=True)
    desk.acts.pop(sid)


async def test_an_answer_that_nobody_takes_was_paid_for(place: Settings, sid: str) -> None:
    """Its execution was ended while the model spoke; what it said came back all the same."""
    desk, meter, gate = Desk(), Meter(), Gate()

    async def held(request: ModelRequest) -> ModelResponse:
        try:
            await gate.passing()
        except asyncio.CancelledError:
            return meter.answer("too late")
        return meter.answer("late")

    async with served(place, desk) as stand:
        desk.scripts[sid] = held
        asking = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=30))
        await gate.reached.wait()
        assert await stand.sessions.session(sid).stop(abort=True)
        await asyncio.gather(asking, return_exceptions=True)
        desk.scripts[sid] = meter.script
        await stand.sessions.ask(sid, "two", agent="main", timeout=30)
        used = await stand.sessions.session(sid).get_usage()
        # The turn may have been finished before the abort could cut it; then its answer is in the thread.
        answers = [each for each in await stand.messages(sid) if each.role == "assistant"]
        assert used.in_thread.calls == len(answers)
        assert used.in_thread.calls <= used.paid.calls <= meter.given


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["tooled", "added"])
async def test_workers_that_are_killed_lose_no_use_of_what_stands_and_count_none_twice(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str, agent: str
) -> None:
    """Each dies once its step is in the thread; the next one finds the step, and its model is not asked."""
    settings = make_settings(temporal_address, redis_url, s3, unique)
    client, _ = await connect(settings)
    options = SessionOptions(idle_timeout=120)
    sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
    asked = asyncio.create_task(sessions.ask(unique, "go", agent=agent, timeout=120))
    for _ in range(2):
        async with worker_processes(settings, ("dying",)) as (dying,):
            await asyncio.to_thread(dying.join, 20)
    async with worker_processes(settings, ("new",)):
        assert (await asked).status is AskStatus.ANSWERED
        used = await sessions.session(unique).get_usage()
        answers = [each for each in await sessions.session(unique).get_messages() if each.role == "assistant"]
    assert used.in_thread.calls == used.paid.calls == len(answers)
    assert used.paid.tokens == Usage(input_tokens=10 * len(answers), output_tokens=len(answers))
