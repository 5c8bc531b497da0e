"""Which keys changed where: a state of any earlier turn becomes the present one, as far as is known."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.models.base import canonical_json
from helix_temporal.models.limits import MAX_CHANGED_BYTES
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.steps import RunStepInput, StepInput
from helix_temporal.models.stored_messages import Head
from helix_temporal.session import record as session_record
from helix_temporal.session.record import (
    ChangedKeys,
    SessionRecord,
    apply_save,
    apply_step,
    list_missing_changes,
)
from helix_temporal.stores.protocols.hot import StepAppend

Changes = dict[str, int | None]
KEYS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 3)), max_size=3)
TURNS = st.lists(st.tuples(CHANGES, CHANGES), min_size=1, max_size=12)


def at(position: int) -> Head:
    return Head(position=position, last_id=f"m{position}")


def stepped(
    record: SessionRecord, run_id: str | None, position: int, *, staged: bool = False, **fields: Any
) -> SessionRecord:
    """The slice after a whole turn of one step."""
    request = RunStepInput(
        session_id="s",
        agent="main",
        epoch=1,
        head=at(position),
        inputs=(StepInput(id=f"q{position}", staged="a change" if staged else ""),),
        run_id=run_id,
        **fields,
    )
    answer = encode_message(Message(id=f"a{position}", role="assistant", content="a"))
    return apply_step(record, StepAppend("s", 1, at(position), (), answer, commits=True), request, ())


def changed(values: dict[str, int], changes: Changes) -> dict[str, int]:
    merged = {**values, **changes}
    return {key: value for key, value in merged.items() if value is not None}


@dataclass
class Life:
    """A session's turns: what the application changes before one, and what tools change in it.

    Attributes:
        truth: The state's values where each turn begins, by place; the last is the present.
    """

    record: SessionRecord = field(default_factory=SessionRecord)
    values: dict[str, int] = field(default_factory=dict)
    truth: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})

    def turn(self, mine: Changes, tools: Changes) -> None:
        """One turn, as the workflow and its steps see it."""
        position, known = max(self.truth), self.truth[max(self.truth)]
        self.values = changed(self.values, mine)
        keys = tuple(key for key in {*known, *self.values} if known.get(key) != self.values.get(key))
        sends = keys or self.values != self.record.values
        fields = {"values": dict(self.values), "changed": keys} if sends else {}
        self.record = stepped(self.record, f"run-{position}", position, staged=bool(tools), **fields)
        # The commit shows the session the whole state.
        self.values = changed(self.values, tools)
        self.truth[position + 2] = dict(self.values)

    def brought(self, place: int) -> dict[str, object]:
        """The state of that place, brought forward."""
        keys = list_missing_changes(self.record, place, max(self.truth))
        found: dict[str, object] = dict(self.truth[place])
        for key in keys:
            found.pop(key, None)
            if key in self.record.values:
                found[key] = self.record.values[key]
        return found


@settings(deadline=None, max_examples=200)
@given(turns=TURNS, most=st.sampled_from((2, 4, 256)))
def test_a_state_of_any_known_turn_becomes_the_present_one(
    turns: list[tuple[Changes, Changes]], most: int
) -> None:
    """However many turns a backup is old, and whoever changed what in them."""
    life = Life()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session_record, "MAX_CHANGED_KEYS", most)
        for mine, tools in turns:
            life.turn(mine, tools)
        life.turn({}, {})
    changes = life.record.changes
    assert changes is not None
    assert len(changes.at) <= most
    known = [place for place in life.truth if place >= changes.since]
    assert known
    assert [life.brought(place) for place in known] == [life.truth[max(life.truth)]] * len(known)


def test_a_plain_turn_adds_a_few_bytes_to_the_slice_once() -> None:
    """It goes with every step, and with every flush."""
    first = stepped(SessionRecord(), "r0", 1000)
    second = stepped(first, "r1", 1002)
    sizes = [
        len(canonical_json(each.model_dump(mode="json", exclude_defaults=True))) for each in (first, second)
    ]
    assert first.changes == ChangedKeys(since=1000, turn=1000)
    assert sizes[0] == sizes[1]
    assert len(canonical_json(first.model_dump(mode="json", exclude_defaults=True)["changes"])) < 32


def test_many_keys_and_long_keys_stay_within_the_bound() -> None:
    """A slice that grows with its session would slow every step of it."""
    record = SessionRecord()
    for number in range(300):
        values = {f"{'k' * (number % 100)}{each}": 1 for each in range(number)}
        record = stepped(record, f"r{number}", 2 * number, values=values)
    assert record.changes is not None
    assert len(canonical_json(record.changes.at)) <= MAX_CHANGED_BYTES
    assert record.changes.since > 0


def test_what_is_saved_when_a_session_rests_is_lacking_in_states_before_only() -> None:
    """A state that has it must not get it again: others may have changed the key since."""
    record = stepped(SessionRecord(), "r0", 0, values={"a": 1}, changed=("a",))
    record = stepped(apply_save(record, {"a": 1, "b": 2}, ("b",), at(2)), "r1", 2)
    assert (list_missing_changes(record, 0, 4), list_missing_changes(record, 2, 4)) == (("a", "b"), ())


def test_a_turn_that_began_before_changes_were_kept_claims_nothing() -> None:
    """An older version ran its first steps: what they changed is known of the newest turn alone."""
    old = SessionRecord(run="r0", turn_steps=1, changed=("a",), values={"a": 1})
    assert stepped(old, "r0", 6).changes is None
    assert stepped(old, None, 6).changes is None
    assert stepped(stepped(old, "r0", 6), "r1", 8).changes == ChangedKeys(since=8, turn=8)


def test_what_tools_changed_and_the_application_was_never_told_counts_as_not_known() -> None:
    """The state was too large to be shown, or its workflow was lost: no values have it."""
    record = stepped(stepped(SessionRecord(), "r0", 0), "r1", 2, staged=True)
    assert record.changes is not None
    assert record.changes.staged
    assert stepped(record, "r2", 4).changes == ChangedKeys(since=3, turn=4)
    assert stepped(record, "r2", 4, values={"a": 1}, changed=()).changes == ChangedKeys(
        since=0, turn=4, at={"a": 3}
    )
    saved = apply_save(record, {"a": 1}, (), at(4))
    assert saved.changes == ChangedKeys(turn=2, at={"a": 3})
