"""Which part of a thread a model gets, and how a broken one is mended: properties over all threads."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.agents import ContextPolicy, choose_context, repair_tool_results
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.stored_messages import Kind, StoredMessage, size_of


def _stored(kinds: str, size: int = 0) -> list[StoredMessage]:
    return [StoredMessage(kind, f"m{at}", b"x" * size) for at, kind in enumerate(kinds)]


def _kinds(chosen: Sequence[StoredMessage]) -> str:
    return "".join(message.kind for message in chosen)


STEP_WITH_TOOLS = st.integers(1, 3).map(lambda results: "c" + "t" * results)
TURN = st.builds(
    lambda inputs, steps, end: "u" * inputs + "".join(steps) + end,
    st.integers(1, 2),
    st.lists(STEP_WITH_TOOLS, max_size=3),
    st.sampled_from(["a", ""]),
)
THREAD = st.lists(TURN, min_size=1, max_size=5).map("".join)
POLICY = st.builds(ContextPolicy, max_messages=st.integers(1, 20), max_bytes=st.integers(1, 400))


def _place(chosen: Sequence[StoredMessage], thread: list[StoredMessage]) -> int:
    start = len(thread) - len(chosen)
    assert list(chosen) == thread[start:]
    return start


def _fits(chosen: Sequence[StoredMessage], policy: ContextPolicy) -> bool:
    return len(chosen) <= policy.max_messages and size_of(chosen) <= policy.max_bytes


@given(THREAD, st.integers(0, 60), POLICY, st.booleans())
def test_the_context_is_the_end_of_the_thread_and_never_begins_with_a_result(
    shape: str, size: int, policy: ContextPolicy, complete: bool
) -> None:
    """Providers refuse a result whose call they can't see."""
    thread = _stored(shape, size)
    chosen = choose_context(thread, policy, complete_before=complete)
    assert thread[_place(chosen, thread)].kind in {Kind.USER, Kind.CALLS}


@given(THREAD, st.integers(0, 60), POLICY)
def test_the_context_keeps_the_bounds_unless_the_last_step_alone_exceeds_them(
    shape: str, size: int, policy: ContextPolicy
) -> None:
    """The bounds are the user's; only the model call itself is worth more."""
    thread = _stored(shape, size)
    chosen = choose_context(thread, policy, complete_before=True)
    last_step = max(at for at, message in enumerate(thread) if message.kind in {Kind.USER, Kind.CALLS})
    assert _fits(chosen, policy) or _place(chosen, thread) == last_step


@given(THREAD, st.integers(0, 60), POLICY)
def test_whole_turns_are_taken_as_many_as_fit(shape: str, size: int, policy: ContextPolicy) -> None:
    """A turn is cut only where the last one alone is too large."""
    thread = _stored(shape, size)
    starts = [at for at in range(len(shape)) if shape[at] == "u" and (at == 0 or shape[at - 1] != "u")]
    fitting = [at for at in starts if _fits(thread[at:], policy)]
    chosen = choose_context(thread, policy, complete_before=True)
    assert _place(chosen, thread) == fitting[0] if fitting else _place(chosen, thread) >= starts[-1]


@given(THREAD, st.integers(0, 60), st.data())
def test_a_window_gives_what_the_whole_thread_would_give(shape: str, size: int, data: st.DataObject) -> None:
    """Stores read only the newest part; the model must not notice where that part began."""
    policy = ContextPolicy(max_messages=data.draw(st.integers(1, 8)))
    thread = _stored(shape, size)
    window = thread[-data.draw(st.integers(10, 30)) :]
    whole = choose_context(thread, policy, complete_before=True)
    assert choose_context(window, policy, complete_before=len(window) == len(thread)) == whole


@pytest.mark.parametrize(
    ("shape", "limit", "complete", "expected"),
    [
        ("uaua" + "u", 3, True, "uau"),
        ("uauau", 2, True, "u"),
        ("uctcta" + "uctct", 4, True, "ctct"),
        ("uctcta" + "uctct", 3, True, "ct"),
        ("ucttttt", 2, True, "cttttt"),
        ("ta" + "uau", 9, False, "uau"),
        ("uauau", 9, False, "uau"),
        ("ttctct", 9, False, "ctct"),
        ("ttt", 9, False, ""),
        ("oooo", 2, True, "oo"),
        ("ooua", 9, True, "ooua"),
        ("ttua", 9, True, "ua"),
        ("", 9, True, ""),
    ],
)
def test_where_the_context_begins(shape: str, limit: int, complete: bool, expected: str) -> None:
    """The rules in small."""
    policy = ContextPolicy(max_messages=limit)
    assert _kinds(choose_context(_stored(shape), policy, complete_before=complete)) == expected


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, None])
def test_bounds_must_be_positive_integers(bad: object) -> None:
    """A context of nothing would be refused by every model, much later."""
    with pytest.raises(InvalidConfigError, match="max_messages must be at least 1"):
        ContextPolicy(max_messages=bad)  # type: ignore[arg-type]


# --- repair ----------------------------------------------------------------------------------------

CALL_IDS = st.sampled_from(["call_0", "call_1", "call_2"])


@st.composite
def _messages(draw: st.DrawFn) -> list[Message]:
    roles = draw(st.lists(st.sampled_from(["user", "assistant", "calls", "tool", "system"]), max_size=12))
    return [_drawn(draw, role, at) for at, role in enumerate(roles)]


def _drawn(draw: st.DrawFn, role: str, at: int) -> Message:
    if role == "calls":
        calls = draw(st.lists(CALL_IDS, min_size=1, max_size=3))
        asked = tuple(ToolCall(id=call, name="look") for call in calls)
        return Message(id=f"m{at}", role="assistant", tool_calls=asked)
    if role == "tool":
        return Message(id=f"m{at}", role="tool", content=f"r{at}", tool_call_id=draw(CALL_IDS))
    return Message.model_validate({"id": f"m{at}", "role": role, "content": f"t{at}"})


def _well_formed(thread: Sequence[Message]) -> bool:
    expected: list[str] = []
    for message in thread:
        if expected:
            if message.role != "tool" or message.tool_call_id != expected.pop(0):
                return False
        elif message.role == "tool":
            return False
        else:
            expected = [call.id for call in message.tool_calls]
    return not expected


@given(_messages())
def test_after_repair_every_call_has_its_one_result_directly_after_it(thread: list[Message]) -> None:
    """Providers refuse anything else, and a thread that they refuse is dead."""
    assert _well_formed(repair_tool_results(thread)[0])


@given(_messages())
def test_repair_counts_nothing_exactly_when_it_changes_nothing(thread: list[Message]) -> None:
    """The count is shown to users; a false alarm is as bad as a silent change."""
    mended, count = repair_tool_results(thread)
    assert (count == 0) == (list(mended) == thread)


@given(_messages())
def test_repair_of_a_repaired_thread_is_the_same(thread: list[Message]) -> None:
    """Every process that reads the thread gives the model the same messages."""
    mended, _ = repair_tool_results(thread)
    assert repair_tool_results(mended) == (mended, 0)


@given(_messages())
def test_repair_keeps_all_that_is_no_result(thread: list[Message]) -> None:
    """What users and models said is never dropped or reordered."""
    kept = [message for message in repair_tool_results(thread)[0] if message.role != "tool"]
    assert kept == [message for message in thread if message.role != "tool"]


@given(_messages())
def test_repair_invents_error_results_only(thread: list[Message]) -> None:
    """A model must be able to tell a lost result from a real one."""
    invented = [message for message in repair_tool_results(thread)[0] if message not in thread]
    assert all(message.is_error and message.id.startswith("missing-") for message in invented)


def test_a_result_behind_a_users_message_goes_back_to_its_call() -> None:
    """Other frameworks' threads have messages between call and result."""
    asked = Message(id="a", role="assistant", tool_calls=(ToolCall(id="c", name="look"),))
    said = Message(id="u", role="user", content="hello?")
    result = Message(id="t", role="tool", content="seen", tool_call_id="c")
    assert repair_tool_results([asked, said, result]) == ((asked, result, said), 1)


def test_results_in_the_wrong_order_are_sorted_by_their_calls() -> None:
    """Whoever finished first wrote first; some providers insist on the order of calls."""
    asked = Message(id="a", role="assistant", tool_calls=tuple(ToolCall(id=c, name="look") for c in "xy"))
    first, second = (Message(id=c, role="tool", content=c, tool_call_id=c) for c in "xy")
    assert repair_tool_results([asked, second, first]) == ((asked, first, second), 1)
