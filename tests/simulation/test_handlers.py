"""Updates of a session that come together: everybody is told, and of the turn that is theirs."""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.models.sessions import AskResult, AskStatus, SessionOptions, UserMessage
from helix_temporal.models.waiting import SubmitInput
from helix_temporal.session.inbox import Inbox
from helix_temporal.workflows.call_answers import Submissions
from helix_temporal.workflows.execution import Execution
from helix_temporal.workflows.session import AgentSession
from tests.simulation._handlers import ASKED, Stage, simulate_handlers

SEEDS = 400


def test_everybody_is_told_of_the_turn_that_is_theirs() -> None:
    """Nobody hangs, nothing that was accepted vanishes, and no answer is told to somebody else."""
    stages = {seed: simulate_handlers(seed) for seed in range(SEEDS)}
    assert {seed: stage.wrong for seed, stage in stages.items() if stage.wrong} == {}
    seen = sum((stage.seen for stage in stages.values()), start=Counter[str]())
    expected = ["moved", "moved, not open", "outdated", "cancelled", "aborted", "sent, and named"]
    expected += [f"ask {told}" for told in ("answered", "suspended", "interrupted", "failed")]
    expected += [f"submit {told}" for told in ("answered", "suspended", "interrupted")]
    assert [each for each in expected if not seen[each]] == []


class NewestTurn:
    """Instead of the turn that was answered: whichever ended last."""

    def __init__(self, run: Execution) -> None:
        self._run = run

    @property
    def result(self) -> AskResult | None:
        """Of that turn."""
        run = self._run
        return run.inbox.last_result if run.turn is None and run.pending_calls.suspended is None else None


async def drain_nobody(_: AgentSession) -> None:
    """Updates that run are left as they are."""


CARRIED = Inbox.carry_over

UNTOLD, UNSTORED = "not told", "neither in the thread"
WITHOUT: list[tuple[type, str, Any, str]] = [
    (Submissions, "_turn_of", lambda self, _: NewestTurn(self._execution), "who answered a call for"),
    (Execution, "wait_for_archive", lambda *_: None, UNSTORED),
    (Execution, "may_end", property(lambda _: True), UNSTORED),
    (AgentSession, "_drain_handlers", drain_nobody, "ended before a handler"),
    (AgentSession, "_answer_all", lambda *_, **__: None, "does not end"),
    (Inbox, "answer_all", lambda self, taken, _=None: self.finish_turn(taken), "does not end"),
    (Inbox, "carry_over", lambda self: ((), *CARRIED(self)[1:]), UNSTORED),
    (Inbox, "try_again", lambda _: None, UNTOLD),
    (
        Inbox,
        "put_back_first",
        lambda self, ids: [self._turn_entries.pop(each, None) for each in ids],
        "does not end",
    ),
    (Inbox, "find", lambda *_: None, UNTOLD),
]


@pytest.mark.parametrize(("owner", "rule", "without", "found"), WITHOUT)
def test_a_session_without_a_rule_is_seen_to_break_a_promise(
    owner: type, rule: str, without: Any, found: str
) -> None:
    """A checker that can't fail proves nothing."""
    with patch.object(owner, rule, without):
        wrong = (each for seed in range(SEEDS) for each in simulate_handlers(seed).wrong)
        assert next((each for each in wrong if found in each), None) is not None


class AlwaysWaits(random.Random):
    """Each step asks for a call that somebody has to answer."""

    def choice(self, seq: Any) -> Any:
        """As drawn for a step's kind and its number of calls; the network is as fast as ever."""
        return "wait" if "wait" in seq else seq[0]


def test_who_asks_is_not_let_go_by_the_timer_of_another() -> None:
    """An archive that is behind is tried again sooner than an ask is let go, and less and less often."""
    stage = Stage(0)
    stage.shelf.draws = AlwaysWaits(0)
    stage._options = SessionOptions(idle_timeout=5.0)
    held: list[float] = []

    async def ask_twice() -> None:
        message = UserMessage(id="m", text="x")
        assert (await stage._call("ask", message)).status is AskStatus.SUSPENDED
        stage.shelf.away = True
        (call,) = stage.shelf.waits
        await stage._call("submit_tool_result", SubmitInput(call=call, by="b", text="r", wait=True))
        began = stage.loop.time()
        with pytest.raises(ApplicationError, match="send the update again"):
            await stage._handlers["ask"](message)
        held.append(stage.loop.time() - began)

    with stage.set_up():
        stage.loop.run(ask_twice())
    assert held == [pytest.approx(ASKED, abs=0.01)]


def test_a_receipt_that_leaves_out_the_turn_that_was_cut_is_seen() -> None:
    """Nobody else would tell of its messages."""
    sent = Inbox.list_sent_ids

    def waiting_alone(inbox: Inbox, **_: bool) -> tuple[str, ...]:
        return sent(inbox, with_turn=False)

    with patch.object(Inbox, "list_sent_ids", waiting_alone):
        wrong = [each for seed in range(SEEDS) for each in simulate_handlers(seed).wrong]
    assert any("neither in the thread" in each for each in wrong)
