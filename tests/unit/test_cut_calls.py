"""Calls of sub-agents that were cut off: the session store hears of them, whatever becomes of an open."""

from typing import Any

import pytest
from temporalio import workflow

from helix_temporal.errors import FencedError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.sessions import CallPolicy, OpenHandle
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.workflows import calls as _calls
from helix_temporal.workflows.calls import TemporalCalls


async def test_calls_that_were_cut_off_are_told_again_where_an_open_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the store shows them as at work, until somebody deletes or opens the session anew."""
    told: list[tuple[str, ...]] = []
    opened = OpenSessionResult(
        handle=OpenHandle(epoch=2, head=EMPTY),
        facts=AgentFacts(name="a"),
        policy=CallPolicy(),
        created=False,
    )
    outcomes: list[Any] = [FencedError("thread 's': another epoch has it"), opened]

    async def run(*_: object) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(
        workflow, "start_activity_method", lambda _, request, **__: told.append(request.cut_children)
    )
    monkeypatch.setattr(_calls, "run_to_completion", run)
    calls = TemporalCalls(CallPolicy())
    calls.children.cut = ["s>helper-1"]
    request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner="o")
    with pytest.raises(FencedError):
        await calls.open(request)
    await calls.open(request)
    assert told == [("s>helper-1",), ("s>helper-1",)]
    assert calls.children.cut == []
