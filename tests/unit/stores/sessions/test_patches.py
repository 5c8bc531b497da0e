"""Patches come from tools, and so from anybody."""

from typing import Any

import pytest

from helix_temporal.errors import PatchConflictError, TooLargeError
from helix_temporal.models.base import JsonObject
from helix_temporal.models.checkpoints import JsonPatchOp, StagedChange
from helix_temporal.stores.sessions.staging import apply_all, apply_change


def op(kind: str, path: str, value: Any = None, source: str | None = None) -> JsonPatchOp:
    return JsonPatchOp.model_validate({"op": kind, "path": path, "value": value, "from": source})


def change(*operations: JsonPatchOp, call: str = "call", **merges: Any) -> StagedChange:
    return StagedChange(tool_call_id=call, patches=operations, merge_changes=merges)


def nested(depth: int) -> JsonObject:
    value: JsonObject = {}
    for _ in range(depth):
        value = {"a": value}
    return value


HOSTILE = {
    "a huge index": op("add", "/list/99999999999999999999", 1),
    "an index of 5,000 digits": op("add", "/list/" + "9" * 4000, 1),
    "a negative index": op("add", "/list/-1", 1),
    "an index with a zero before it": op("replace", "/list/01", 1),
    "an index with an underscore": op("replace", "/list/1_0", 1),
    "an index in other digits": op("replace", "/list/\u0661", 1),
    "a path without a slash": op("add", "list", 1),
    "a path with a bad escape": op("add", "/a~2b", 1),
    "a path of many parts": op("add", "/a" * 200, 1),
    "a very long path": op("add", "/" + "x" * 5000, 1),
    "the end of a list to remove": op("remove", "/list/-"),
    "the end of a list to replace": op("replace", "/list/-", 1),
    "the whole state to remove": op("remove", ""),
    "a list for the whole state": op("replace", "", []),
    "null for the whole state": op("add", "", None),
    "a move into itself": op("move", "/deep/x/y", source="/deep"),
    "a move of everything": op("move", "/x", source=""),
    "a copy without a source": op("copy", "/x"),
    "a copy from nowhere": op("copy", "/x", source="/nowhere"),
    "a place in a text": op("add", "/text/0", "x"),
    "a place in a number": op("add", "/number/a", 1),
    "true for one": op("test", "/number", True),
    "a value that nests too deep": op("add", "/deep/x", nested(63)),
}


class TestAHostilePatch:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_is_refused_as_what_it_is(self, name: str) -> None:
        """A tool's mistake must not look like a broken store, nor get through."""
        state: JsonObject = {"list": [1, 2], "deep": {"x": {}}, "text": "abc", "number": 1}
        with pytest.raises(PatchConflictError) as caught:
            apply_all(state, [change(HOSTILE[name])])
        assert caught.value.facts == {"tool_call_id": "call", "operation": 0}
        assert state == {"list": [1, 2], "deep": {"x": {}}, "text": "abc", "number": 1}

    def test_does_not_double_the_state_without_end(self) -> None:
        """Forty copies of everything into itself would be more than any memory."""
        doubling = [op("copy", f"/{n}", source="") for n in range(40)]
        with pytest.raises((TooLargeError, PatchConflictError)):
            apply_change({"text": "x" * 1000}, change(*doubling))

    def test_does_not_double_a_list_without_end(self) -> None:
        """The same without any depth."""
        doubling = [op("copy", "/list/-", source="/list") for _ in range(4)]
        flat = [op("copy", f"/{n}", source="/text") for n in range(100)]
        with pytest.raises(TooLargeError):
            apply_change({"list": [], "text": "x" * 1024 * 1024}, change(*doubling, *flat))

    def test_does_not_nest_step_by_step(self) -> None:
        """Each operation alone is harmless."""
        deeper = [op("add", "/a" * (n + 1), {}) for n in range(80)]
        with pytest.raises(PatchConflictError):
            apply_all({}, [change(*deeper)])

    def test_does_not_nest_by_moves(self) -> None:
        """Moving a deep value below another one adds their depths."""
        moves = [op("add", "/b", nested(60)), op("add", "/c", nested(60))]
        moves += [op("move", "/c" + "/a" * 60 + "/x", source="/b")] * 3
        with pytest.raises(PatchConflictError):
            apply_all({}, [change(*moves)])

    def test_says_nothing_of_the_state(self) -> None:
        """Errors go into logs and histories."""
        with pytest.raises(PatchConflictError) as caught:
            apply_all({"token": "hunter2"}, [change(op("test", "/token", "another"))])
        assert "hunter2" not in str(caught.value)
        assert "another" not in str(caught.value)

    def test_names_the_operation_that_failed(self) -> None:
        """Its author finds it among many."""
        with pytest.raises(PatchConflictError) as caught:
            apply_all({}, [change(op("add", "/a", 1), op("remove", "/b"), call="second")])
        assert caught.value.facts == {"tool_call_id": "second", "operation": 1}


class TestAChange:
    def test_leaves_the_given_state_alone(self) -> None:
        """A commit that was overtaken decides again from what it was given."""
        state: JsonObject = {"list": [1]}
        after, _ = apply_all(state, [change(op("add", "/list/-", 2))])
        assert (state, after) == ({"list": [1]}, {"list": [1, 2]})

    def test_adds_to_a_list_by_key(self) -> None:
        """By key a list is what is new of it, as two tools of a step may each have some."""
        changes = [change(call="a", list=[1], text="x"), change(call="b", list=[2], text="y")]
        assert apply_all({"list": [0]}, changes) == ({"list": [0, 1, 2], "text": "y"}, ())

    def test_replaces_what_is_no_list(self) -> None:
        """There is nothing to add to."""
        assert apply_all({"list": 5}, [change(list=[1])]) == ({"list": [1]}, ())

    def test_that_fails_is_left_out_whole(self) -> None:
        """Half a tool's change is worse than none of it."""
        changes = [
            change(op("add", "/a", 1), call="good"),
            change(op("add", "/b", 1), op("test", "/b", 2), call="bad"),
            change(op("add", "/c", 1), call="better"),
        ]
        after, warnings = apply_all({}, changes, warn=True)
        assert after == {"a": 1, "c": 1}
        assert [("bad" in each) for each in warnings] == [True]

    def test_of_many_operations_is_within_its_limits(self) -> None:
        """A legitimate patch of a thousand copies of little things."""
        copies = [op("copy", f"/{n}", source="/a") for n in range(1_000)]
        after, _ = apply_all({"a": {"b": [1, 2, 3]}}, [change(*copies)])
        assert len(after) == 1_001
