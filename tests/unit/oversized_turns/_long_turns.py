"""A session whose turns are longer than a page, in a directory."""

from helix_temporal.backends import Backends
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import Head

CALLS = 199
MESSAGES = 2 * CALLS + 2
"""Of one turn: the question, each call with its result, the answer."""
STEPS = CALLS + 1


def long_turn(number: int) -> list[Message]:
    """A turn of so many calls, whose texts name their steps."""
    said = [Message(id=f"u{number}", role="user", content=f"question {number}")]
    for step in range(1, CALLS + 1):
        call = ToolCall(id="call_0", name="look", arguments={"step": step})
        asked = f"a{number}-{step}"
        said.append(Message(id=asked, role="assistant", content=f"{number}: step {step}", tool_calls=(call,)))
        result = f"seen {number}-{step}"
        said.append(
            Message(id=f"t{number}-{step}", role="tool", tool_call_id="call_0", name="look", content=result)
        )
    said.append(Message(id=f"b{number}", role="assistant", content=f"{number}: step {STEPS}"))
    return said


def position_of(turn: int, step: int) -> int:
    """Where the answer of a step stands."""
    return (turn - 1) * MESSAGES + 2 * step - 1


async def write_long_session(backends: Backends, session_id: str, *, turns: int, runs: bool = True) -> None:
    """A session of so many long turns, with a run for each or none."""
    await backends.sessions.create_session(session_id, CreateSession())
    for number in range(1, turns + 1):
        last = "" if number == 1 else f"b{number - 1}"
        start = Head(position=(number - 1) * MESSAGES, last_id=last)
        if runs:
            await backends.sessions.start_run(session_id, NewRun(run_id=f"r{number}", start_head=start))
        await backends.sessions.append_messages(session_id, long_turn(number))
        if runs:
            change = RunChange(status=RunStatus.COMPLETED, step_count=STEPS)
            await backends.sessions.update_run(session_id, f"r{number}", change)
