"""Tool schemas in Gemini's subset of JSON schema."""

from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from helix_temporal.adapters.google import gemini_schema
from helix_temporal.agents import tool

TAKEN = {
    *("$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems"),
    *("minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties"),
    *("required", "propertyOrdering"),
}
"""What the library's documentation lists."""


def words(schema: Any) -> set[str]:
    """All keywords in a schema, not the names of properties."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for name, value in schema.items():
        inner: list[Any] = []
        if name in {"properties", "$defs"}:
            inner = list(value.values())
        elif name in {"anyOf", "prefixItems"}:
            inner = list(value)
        elif name in {"items", "additionalProperties"}:
            inner = [value]
        found |= {word for each in inner for word in words(each)}
    return found


def one(**schema: Any) -> Any:
    """What becomes of one parameter."""
    converted = gemini_schema({"type": "object", "properties": {"x": schema}})
    assert converted is not None
    properties: Any = converted["properties"]
    return properties["x"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Stop(BaseModel):
    city: str = Field(min_length=1, pattern="^[A-Z]", description="Where.")
    nights: int = Field(default=1, gt=0, le=30)


@tool
async def travel(
    stops: list[Stop], colour: Colour, mode: Literal["car", "train"], note: str | None = None
) -> str:
    """Plan a journey."""
    return f"{stops}{colour}{mode}{note}"


def test_a_schema_of_a_function_keeps_its_meaning() -> None:
    """What a developer writes as types reaches the model, whatever keywords that takes."""
    converted = gemini_schema(travel.parameters)

    assert converted is not None
    assert words(converted) <= TAKEN
    properties: Any = converted["properties"]
    definitions: Any = converted["$defs"]
    assert converted["required"] == ["stops", "colour", "mode"]
    assert properties["stops"]["items"] == {"$ref": "#/$defs/Stop"}
    assert properties["mode"]["enum"] == ["car", "train"]
    assert [each["type"] for each in properties["note"]["anyOf"]] == ["string", "null"]
    assert definitions["Colour"]["enum"] == ["red", "blue"]
    stop = definitions["Stop"]["properties"]
    assert (stop["nights"]["minimum"], stop["nights"]["maximum"]) == (1, 30)
    assert "pattern: ^[A-Z]" in stop["city"]["description"]


@pytest.mark.parametrize(
    ("given_schema", "expected"),
    [
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"enum": ["a", None]}, {"enum": ["a"], "type": ["string", "null"]}),
        ({"type": "string", "enum": ["a", None]}, {"enum": ["a"], "type": ["string", "null"]}),
        ({"const": True, "type": "boolean"}, {"type": "boolean", "description": "(one of [True])"}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"anyOf": [{"type": "string"}, {"enum": [1]}]}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "integer", "maximum": 8}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "email"}, {"type": "string", "description": "(format: email)"}),
        ({"$ref": "#/definitions/A", "description": "gone"}, {"$ref": "#/$defs/A"}),
        ({"allOf": [{"$ref": "#/$defs/A"}]}, {"anyOf": [{"$ref": "#/$defs/A"}]}),
        (
            {"items": [{"type": "string"}], "not": {}},
            {"prefixItems": [{"type": "string"}]},
        ),
        (
            {
                "allOf": [
                    {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]},
                    {"properties": {"b": True}, "required": ["b"]},
                ]
            },
            {
                "type": "object",
                "properties": {"a": {"enum": ["x"], "type": "string"}, "b": {}},
                "required": ["a", "b"],
            },
        ),
        (
            {"type": "object", "additionalProperties": {"const": "x"}},
            {"type": "object", "additionalProperties": {"enum": ["x"], "type": "string"}},
        ),
    ],
)
def test_what_gemini_refuses_is_said_otherwise(
    given_schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    """One refused keyword in one tool would make every request of the agent fail."""
    assert one(**given_schema) == expected


def test_a_property_may_be_called_like_a_keyword() -> None:
    """Names of parameters are no keywords."""
    converted = gemini_schema({"type": "object", "properties": {"pattern": {"type": "string"}, "not": {}}})

    assert converted == {"type": "object", "properties": {"pattern": {"type": "string"}, "not": {}}}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_a_tool_without_parameters_has_no_schema(schema: dict[str, Any]) -> None:
    """An object of nothing is refused."""
    assert gemini_schema(schema) is None


_leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
_words = st.sampled_from(
    [*sorted(TAKEN), "const", "oneOf", "allOf", "not", "exclusiveMinimum", "pattern", "x"]
)
_schemas = st.recursive(
    _leaves,
    lambda inner: st.dictionaries(_words, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(properties=st.dictionaries(st.text(max_size=3), _schemas, min_size=1, max_size=3))
def test_any_schema_ends_within_the_subset(properties: dict[str, Any]) -> None:
    """Schemas come from anywhere; none may make a request fail before it is sent."""
    converted = gemini_schema({"type": "object", "properties": properties})

    assert converted is not None
    assert words(converted) <= TAKEN
