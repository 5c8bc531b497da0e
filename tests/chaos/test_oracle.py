"""A checker that can't fail proves nothing."""

import pytest

from helix_temporal.activities import steps
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.sessions import AnswerRef, AskResult, AskStatus
from helix_temporal.models.usage import TokenCounts, TokenSums, TokenUsageEntry, UsageRollup
from helix_temporal.models.waiting import DENIED, PendingCall
from helix_temporal.testing.builders import user_message
from tests.chaos._agent import amount_of
from tests.chaos._answers import Given, check_given
from tests.chaos._boundaries import At
from tests.chaos._ledger import Event
from tests.chaos._oracle import Ask, Findings, check_books, check_thread
from tests.chaos._paid import Tree, check_paid
from tests.chaos._points import KillPoints
from tests.chaos._stage import Stage

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"
THREAD = [
    user_message("s-0-0", "tools=1"),
    Message(
        id="a1", role="assistant", content=f"re s-0-0 #{TOKEN}", tool_calls=(ToolCall(id="c", name="touch"),)
    ),
    Message(id="a1.0", role="tool", tool_call_id="c", content="touched"),
    Message(id="a2", role="assistant", content="done"),
    user_message("s-0-1", "hello"),
    Message(id="a3", role="assistant", content="hi"),
]


def an_ask(number: int, position: int, answer: str, text: str) -> Ask:
    result = AskResult(
        status=AskStatus.ANSWERED,
        in_thread=True,
        text=answer,
        answer=AnswerRef(position=position, id=f"a{position}"),
    )
    return Ask("s", 0, number, f"s-0-{number}", text, result)


def asks() -> list[Ask]:
    first, second = an_ask(0, 3, "done", "tools=1"), an_ask(1, 5, "hi", "hello")
    assert first.result is not None
    assert second.result is not None
    first.result = first.result.model_copy(update={"answer": AnswerRef(position=3, id="a2")})
    second.result = second.result.model_copy(update={"answer": AnswerRef(position=5, id="a3")})
    return [first, second]


def kinds(findings: Findings) -> set[str]:
    return {name for name, count in findings.counts().items() if count}


def test_a_thread_as_it_should_be_has_no_findings() -> None:
    """Everything below is a change of this one."""
    assert not check_thread("s", asks(), THREAD).all


def test_an_acknowledged_message_that_is_missing_is_lost() -> None:
    """The first promise of all."""
    assert "lost" in kinds(check_thread("s", asks(), THREAD[:4]))


def test_a_message_that_stands_twice_is_doubled() -> None:
    """The second one."""
    assert "doubled" in kinds(check_thread("s", asks(), [*THREAD, THREAD[4], THREAD[5]]))


def test_turns_in_another_order_are_reordered() -> None:
    """Asks of one asker come one after the other."""
    assert "reordered" in kinds(check_thread("s", asks(), [*THREAD[4:], *THREAD[:4]]))


def test_a_call_without_its_result_is_malformed() -> None:
    """Providers refuse such a conversation."""
    assert "malformed" in kinds(check_thread("s", asks(), [*THREAD[:2], *THREAD[3:]]))


def test_an_answer_that_is_not_the_one_told_is_wrong() -> None:
    """The caller may have shown it to somebody already."""
    changed = [*THREAD[:5], Message(id="a3", role="assistant", content="something else")]
    assert "wrong_answers" in kinds(check_thread("s", asks(), changed))


def test_an_ask_without_a_result_is_unresolved() -> None:
    """Every ask resolves."""
    waiting = asks()
    waiting[1].result = None
    assert "unresolved" in kinds(check_thread("s", waiting, THREAD))


def _call(at: int, token: str, pid: int = 1) -> Event:
    return Event("model", at, pid, {"session": "s", "inputs": ["s-0-0"], "token": token})


def test_a_model_call_after_the_append_of_its_step_is_paid_twice() -> None:
    """Two overlapping attempts are not: neither could know."""
    appended = Event("appended", 20, 1, {"token": TOKEN})
    again = Event("appended", 40, 1, {"token": TOKEN})
    late = [_call(10, TOKEN), appended, _call(30, OTHER), again]
    assert "paid_twice" in kinds(check_books(late, {"s": THREAD}))
    assert not check_books([_call(10, TOKEN), _call(15, OTHER), appended], {"s": THREAD}).all


def test_what_a_killed_process_appended_counts_from_its_death() -> None:
    """It had no time to write down that it did."""
    events = [_call(10, TOKEN, pid=7), _call(30, OTHER)]
    assert "paid_twice" in kinds(check_books(events, {"s": THREAD}, {7: 20}))


def test_effects_under_two_keys_or_of_no_step_are_found() -> None:
    """A lost step must not have had effects."""
    gone = Event("tool", 1, 1, {"session": "s", "key": "s/gone/0", "what": "x"})
    assert "effects_twice" in kinds(check_books([gone], {"s": THREAD}))


def _counts(token: str, answer: str, session: str = "s") -> TokenUsageEntry:
    counts = TokenCounts(prompt=amount_of(token), completion=1)
    return TokenUsageEntry(id=f"step/{answer}", session_id=session, timestamp=1, model="m", tokens=counts)


def _tree(*entries: TokenUsageEntry) -> Tree:
    """A root with one answer, and a sub-agent with one; its sums are those of the entries."""
    tree = Tree("s", answers={"s": {"a1": f"re #{TOKEN}"}, "s>b": {"b1": f"re #{OTHER}"}})
    tree.entries = {name: [each for each in entries if each.session_id == name] for name in tree.answers}
    sums = TokenSums(prompt=sum(each.tokens.prompt for each in entries), completion=len(entries))
    tree.rollup = UsageRollup(
        session_ids=("s", "s>b"), tokens=sums, entry_count=len(entries), first_at=1, last_at=1
    )
    return tree


def _paid(session: str, token: str, pid: int = 1) -> Event:
    return Event("paid", 1, pid, {"session": session, "token": token})


MINE, BELOW = _counts(TOKEN, "a1"), _counts(OTHER, "b1", "s>b")
PAID = [_paid("s", TOKEN), _paid("s>b", OTHER)]


PENDING = PendingCall(
    id="a1.0", call_id="c", name="pay", kind="approval", position=1, at=0, arguments={"what": "rent"}
)
DENIAL = [THREAD[0], THREAD[1], Message(id="a1.0", role="tool", tool_call_id="c", content=DENIED)]


@pytest.mark.parametrize(("first", "forgets", "found"), [
    (True, True, False), (True, False, True), (False, True, True),
])  # fmt: skip
def test_what_was_denied_ran_only_where_a_terminate_forgot_an_approval(
    first: bool, forgets: bool, found: bool
) -> None:
    book = [
        Given("s", PENDING, f"by {n}", approved, ["submitted"]) for n, approved in enumerate((first, False))
    ]
    ran = [Event("tool", 1, 1, {"session": "s", "what": "rent"})]
    findings = check_given(book, {"s": DENIAL}, ran, forgets=lambda _: forgets)
    assert bool(findings.effects_twice) is found


def test_usage_that_is_what_was_paid_for_has_no_findings() -> None:
    """Of a process that was killed nobody expects more than it had time for."""
    assert not check_paid(_tree(MINE, BELOW), PAID, ()).all
    assert not check_paid(_tree(MINE, BELOW), [*PAID, _paid("s", "0" * 16, pid=7)], {7}).all


def test_an_answer_that_is_not_counted_is_found() -> None:
    """Whoever is billed by the sums is told that the sums are all."""
    assert "lost" in kinds(check_paid(_tree(MINE), PAID, {1}))
    assert "lost" in kinds(check_paid(_tree(MINE, BELOW), [*PAID, _paid("s", "0" * 16)], {7}))


def test_a_call_that_is_counted_twice_or_was_never_made_is_found() -> None:
    """Under another id the store takes an entry as a new one."""
    assert "doubled" in kinds(check_paid(_tree(MINE, _counts(TOKEN, "a2"), BELOW), PAID, ()))
    assert "doubled" in kinds(check_paid(_tree(MINE, BELOW), PAID[:1], ()))


def test_sums_that_do_not_reach_a_sub_agent_are_found() -> None:
    """The edges between sessions are entries, too."""
    tree = _tree(MINE, BELOW)
    tree.rollup = UsageRollup(
        session_ids=("s",),
        tokens=TokenSums(prompt=amount_of(TOKEN), completion=1),
        entry_count=1,
        first_at=1,
        last_at=1,
    )
    assert {"lost", "others"} <= kinds(check_paid(tree, PAID, ()))


async def test_a_step_that_does_not_look_before_it_calls_the_model_is_caught(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill points see it when the guard is removed."""
    monkeypatch.setattr(steps, "find_standing_step", lambda *_: None)
    points = await KillPoints(stage, "a plain step").run([At.ANSWER_LOST])
    assert any("paid_twice" in found for found in points.found), points
