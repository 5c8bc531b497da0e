"""JSON as bytes that are kept: they take the room that they need."""

import tracemalloc

import pytest

from helix_temporal.models.base import canonical_json, dump_json


@pytest.mark.parametrize("size", [5, 500, 5_000])
def test_bytes_that_are_kept_take_no_more_room_than_they_have(size: int) -> None:
    """A worker holds thousands of messages: a buffer of 4 KB behind each would be most of its memory."""
    value = {"text": "x" * size}
    tracemalloc.start()
    try:
        kept = [canonical_json(value) for _ in range(100)]
        taken = tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()
    assert taken < len(kept[0]) + 200


def test_the_same_value_gives_the_same_bytes() -> None:
    """Whatever the order of its keys."""
    assert canonical_json({"b": 1, "a": [2]}) == canonical_json({"a": [2], "b": 1}) == b'{"a":[2],"b":1}'


def test_keys_stay_in_order_where_nobody_sorts_them() -> None:
    """And what JSON does not know is turned into what it does."""
    assert dump_json({"b": {3}, "a": 1}, default=sorted) == b'{"b":[3],"a":1}'
