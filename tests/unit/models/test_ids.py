"""Ids: what is accepted comes back, and no two share a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.ids import MAX_BYTES, MAX_CHARACTERS, MAX_ENCODED, encode_id, validate_id

good_ids = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=MAX_CHARACTERS
).filter(lambda text: len(text.encode()) <= MAX_BYTES)


@given(good_ids)
def test_a_good_id_is_kept_as_it_is(value: str) -> None:
    """Nothing is normalised, trimmed or folded."""
    assert validate_id(value) == value


@given(good_ids)
def test_a_key_form_is_short_and_plain(value: str) -> None:
    """It is safe in Redis keys, object keys, file names, URLs and shells."""
    encoded = encode_id(value)
    assert 0 < len(encoded) <= MAX_ENCODED
    assert set(encoded) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~")


@given(good_ids, good_ids)
def test_two_ids_have_two_key_forms(one: str, other: str) -> None:
    """However alike they are."""
    assert (encode_id(one) == encode_id(other)) == (one == other)


@given(good_ids)
def test_short_forms_can_be_read_back(value: str) -> None:
    """An inspector shows whose key it is; only long ones are hashed."""
    encoded = encode_id(value)
    kept = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    whole = "".join(chr(byte) if byte in kept else f"~{byte:02x}" for byte in value.encode())
    assert encoded == (whole if len(whole) <= MAX_ENCODED else f"{whole[:60]}~{encoded[61:]}")


@pytest.mark.parametrize("value", ["x" * 256, "é" * 256, "日" * 170, " ", "a b", "\u202e", "😀"])
def test_limits_themselves_are_allowed(value: str) -> None:
    """256 characters, 512 bytes, spaces and marks."""
    assert validate_id(value) == value


@pytest.mark.parametrize(
    "value", ["", "x" * 257, "日" * 171, "\x00", "a\x7f", "\x85", "\udfff", None, 1, b"a"]
)
def test_what_is_beyond_is_refused(value: object) -> None:
    """The message names the field."""
    with pytest.raises(InvalidIdError, match=r"^session id: "):
        validate_id(value, "session id")


def test_a_lone_surrogate_has_no_key_form() -> None:
    """No store can keep it."""
    with pytest.raises(InvalidIdError, match="lone surrogate at 1"):
        encode_id("a\ud800")
