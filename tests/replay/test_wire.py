"""Names and shapes on the wire are permanent: what runs, and what is stored, depends on them."""

import json
from typing import Any

import pytest

from tests.replay._wire import WIRE_FILE, names, schemas

PINNED: dict[str, Any] = json.loads(WIRE_FILE.read_text())
HOW = "if that is meant: python -m tests.replay.record --wire, and a line in the changelog"


@pytest.mark.parametrize("kind", sorted(PINNED["names"]))
def test_names_on_the_wire_are_pinned(kind: str) -> None:
    """Activities, workflows, updates, queries, and error classes, whose names are Temporal's error types."""
    assert names()[kind] == PINNED["names"][kind], HOW


def test_models_still_read_what_was_written() -> None:
    """Fields are added with defaults, never renamed, removed, made required or of another type."""
    now = schemas()
    gone = PINNED["schemas"].keys() - now.keys()
    assert gone == set(), HOW
    found = [each for name, old in PINNED["schemas"].items() for each in problems(old, now[name], name)]
    assert found == [], HOW


def problems(old: Any, new: Any, where: str) -> list[str]:
    """Why a reader of ``new`` may stumble over what was written as ``old``."""
    if "anyOf" in new and "anyOf" not in old and "type" in old:
        # It takes more than it did: what it took must be among that.
        wider = [each for each in new["anyOf"] if each.get("type") == old["type"]]
        defaults = {name: value for name, value in new.items() if name == "default"}
        return problems(old, wider[0] | defaults, where) if wider else [f"{where}: type is another"]
    required = set(new.get("required", [])) - set(old.get("required", []))
    found = [f"{where}: {name!r} is required now" for name in required]
    for name, value in old.items():
        if name not in new and name != "required":
            found.append(f"{where}: {name!r} is gone")
        elif name in {"properties", "$defs"}:
            for key, schema in value.items():
                found += problems(schema, new[name].get(key, {}), f"{where}.{key}")
        else:
            found += _of_value(name, value, new.get(name), where)
    return found


def _of_value(name: str, old: Any, new: Any, where: str) -> list[str]:
    if name in {"enum", "anyOf"}:
        return [f"{where}: {each!r} is gone" for each in old if each not in new]
    if name in {"type", "$ref", "default", "const"} and old != new:
        return [f"{where}: {name} was {old!r}, is {new!r}"]
    return []


@pytest.mark.parametrize(
    "change",
    [
        {"properties": {}},
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"a": {"type": "integer"}}},
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]},
    ],
    ids=["removed", "made required", "another type", "added without a default"],
)
def test_a_breaking_change_of_a_model_is_noticed(change: dict[str, Any]) -> None:
    """The check itself is checked."""
    old = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert problems(old, {"type": "object", **change}, "Model")


def test_a_field_that_takes_more_than_it_did_is_no_problem() -> None:
    """A number, or now nothing."""
    old = {"type": "object", "properties": {"a": {"type": "number"}}}
    new = {"type": "object", "properties": {"a": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}
    assert problems(old, new, "Model") == []


def test_an_added_field_with_a_default_is_no_problem() -> None:
    """Models grow."""
    old = {"type": "object", "properties": {"a": {"type": "string"}}}
    new = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": ""}}}
    assert problems(old, new, "Model") == []
