"""The page says which texts the session's record holds: whoever has to encrypt or delete goes by it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from helix_temporal.session.record import SessionRecord
from tests.docs._pages import ROOT

PAGE: Final = (ROOT / "docs" / "guarantees.md").read_text()

TEXTS: Final[Mapping[str, str]] = {
    "metadata": "the session's metadata",
    "values": "the application's values",
    "instructions": "pinned instructions",
    "summary.text": "the summary of older messages",
    "suspended.outcomes.result.text": "results of tools and answers of people",
    "suspended.outcomes.result.parts": "results of tools and answers of people",
    "suspended.children.calls.arguments": "arguments of calls that wait in sub-agents",
    "suspended.children.answers.request.text": "answers on their way to sub-agents",
    "suspended.children.answers.request.parts": "answers on their way to sub-agents",
    "taken_back.messages.text": "users' messages that are asked anew",
    "taken_back.messages.metadata": "users' messages that are asked anew",
    "taken_back.messages.properties": "users' messages that are asked anew",
}
"""Fields that hold what people, models or tools have said, and how the page names them."""

NAMES: Final = {
    "agent", "run", "writer", "changed", "changes.at", "changes.staged", "summary.upto.last_id",
    "answered.id", "answered.outcome", "answered.by", "options.suspend", "options.while_suspended",
    "options.archive", "taken_back.id", "taken_back.to.last_id", "taken_back.messages.id",
    "taken_back.messages.ref", "taken_back.messages.agent", "taken_back.messages.thread_id",
    "taken_back.checkpoint", "taken_back.cut", "suspended.head.last_id", "suspended.calls.id",
    "suspended.calls.kind", "suspended.outcomes.result.ref", "suspended.outcomes.result.child.session_id",
    "suspended.outcomes.result.child.status", "suspended.outcomes.result.child.agent",
    "suspended.outcomes.result.staged", "suspended.outcomes.answered.id",
    "suspended.outcomes.answered.outcome", "suspended.outcomes.answered.by",
    "suspended.children.session_id", "suspended.children.call", "suspended.children.agent",
    "suspended.children.task_queue", "suspended.children.calls.id", "suspended.children.calls.call_id",
    "suspended.children.calls.name", "suspended.children.calls.kind", "suspended.children.calls.route",
    "suspended.children.answers.request.call", "suspended.children.answers.request.outcome",
    "suspended.children.answers.request.ref", "suspended.children.answers.request.by",
    "taken_back.messages.traceparent", "trace.root", "trace.agent", "trace.parent", "trace.links",
    "trace.before", "trace.waits.tool", "trace.waits.kind", "trace.waits.outcome",
}  # fmt: skip
"""Fields that hold ids, names and words of ours."""


def fields_with_text(schema: Mapping[str, Any], definitions: Mapping[str, Any], name: str) -> Iterator[str]:
    """The fields below ``name`` that hold strings, or JSON of any kind."""
    if "$ref" in schema:
        target = schema["$ref"].rsplit("/", 1)[1]
        yield from fields_with_text(definitions[target], definitions, name)
    for each in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from fields_with_text(each, definitions, name)
    for key, each in schema.get("properties", {}).items():
        yield from fields_with_text(each, definitions, f"{name}.{key}".lstrip("."))
    if schema.get("type") == "string" or (schema.get("type") == "object" and "properties" not in schema):
        yield name


def found_in_record() -> set[str]:
    """Of a session's record; what is below a field that is told of as a whole counts as that field."""
    schema = SessionRecord.model_json_schema()
    found = fields_with_text(schema, schema["$defs"], "")
    return {next((whole for whole in TEXTS if each.startswith(f"{whole}.")), each) for each in found}


def test_every_field_of_the_record_is_a_text_or_a_name() -> None:
    """A new field is a decision: what people said belongs on the page."""
    assert found_in_record() == {*TEXTS, *NAMES}


def test_the_page_names_every_text_of_the_record() -> None:
    """A reader who looks for personal data finds all places."""
    row = re.search(r"^\| the session's record, .*$", PAGE, re.MULTILINE)
    assert row is not None
    assert [each for each in TEXTS.values() if each not in row[0]] == []
