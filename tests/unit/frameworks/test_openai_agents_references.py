"""References to conversations: only a signer with the key makes one, and for one workflow."""

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import InvalidConfigError, InvalidReferenceError
from helix_temporal.frameworks.openai_agents_references import (
    StepNote,
    ThreadReference,
    ThreadReferenceSigner,
    find_reference,
    find_row,
    find_step_note,
    is_ours,
    make_reference_item,
    make_row_item,
)
from helix_temporal.models.stored_messages import Head

SIGNER = ThreadReferenceSigner("a key of sixteen or more")
REFERENCE = ThreadReference("openai-agents/ü:1", 17, Head(position=3, last_id="17/2"))
TEXT = SIGNER.sign(REFERENCE, "workflow")


def test_a_reference_says_what_it_was_made_of() -> None:
    """Also that only the newest items are meant, which anybody may add: it narrows it."""
    assert SIGNER.verify(TEXT, "workflow") == REFERENCE
    narrowed = find_reference(make_reference_item(TEXT, 2))
    assert narrowed is not None
    assert SIGNER.verify(narrowed, "workflow").start == 1


@given(st.integers(min_value=0, max_value=len(TEXT) - 1), st.sampled_from(string.printable))
def test_a_reference_with_another_letter_is_refused(at: int, letter: str) -> None:
    """Wherever it is."""
    changed = TEXT[:at] + letter + TEXT[at + 1 :]
    if changed != TEXT:
        with pytest.raises(InvalidReferenceError):
            SIGNER.verify(changed, "workflow")


@given(st.integers(min_value=0, max_value=len(TEXT) - 1))
def test_a_reference_that_was_cut_off_is_refused(length: int) -> None:
    """At either end."""
    for cut in (TEXT[:length], TEXT[len(TEXT) - length :]):
        with pytest.raises(InvalidReferenceError):
            SIGNER.verify(cut, "workflow")


@given(st.text())
def test_no_text_is_a_reference(text: str) -> None:
    """Nor is one that begins as they do."""
    for claimed in (text, f"helix-thread/1.{text}"):
        with pytest.raises(InvalidReferenceError):
            SIGNER.verify(claimed, "workflow")


def test_a_reference_is_one_workflows() -> None:
    """And one key's; what is refused is not told."""
    with pytest.raises(InvalidReferenceError) as refused:
        SIGNER.verify(TEXT, "another workflow")
    assert TEXT not in str(refused.value)
    with pytest.raises(InvalidReferenceError):
        ThreadReferenceSigner("another key of sixteen").verify(TEXT, "workflow")


def test_keys_are_changed_while_workers_serve() -> None:
    """First all workers take the next key, then all sign with it, then none takes the former one."""
    old, new = "the former key of all", "the next key of all workers"
    stages = (
        ThreadReferenceSigner(old),
        ThreadReferenceSigner(old, new),
        ThreadReferenceSigner(new, old),
        ThreadReferenceSigner(new),
    )
    for one, other in itertools.pairwise(stages):
        for signer, reader in ((one, other), (other, one)):
            assert reader.verify(signer.sign(REFERENCE, "workflow"), "workflow") == REFERENCE
    with pytest.raises(InvalidReferenceError):
        stages[3].verify(stages[1].sign(REFERENCE, "workflow"), "workflow")


@pytest.mark.parametrize("keys", [("short",), ("one that is long enough", "short")])
def test_a_short_key_is_refused(keys: tuple[str, ...]) -> None:
    """As for archives."""
    with pytest.raises(InvalidConfigError, match="fewer than 16"):
        ThreadReferenceSigner(*keys)


def test_a_note_comes_back() -> None:
    """With items that the input does not have."""
    note = StepNote(TEXT, Head(position=3, last_id="17/2"), (1, {"role": "user", "content": "x"}))
    text = find_step_note(note.as_item())
    assert text is not None
    assert StepNote.parse(text) == note
    assert note.select_pending(["a", "b"]) == ["b", {"role": "user", "content": "x"}]
    with pytest.raises(InvalidReferenceError):
        note.select_pending(["a"])


@pytest.mark.parametrize(
    "text", ["helix-step/1.", "helix-step/1.[]", "helix-step/1.[1,-1,2]", "helix-step/1.7"]
)
def test_a_note_that_cannot_be_read_is_refused(text: str) -> None:
    """By a typed error."""
    with pytest.raises(InvalidReferenceError):
        StepNote.parse(text)


def test_other_items_are_not_ours() -> None:
    """A reference of the provider's own is passed on."""
    others = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": TEXT}, "text", None]
    assert not any(map(is_ours, others))
    assert find_row(make_row_item(4)) == 4
    with pytest.raises(InvalidReferenceError):
        find_row({"type": "item_reference", "id": "helix-row/1.-1"})
