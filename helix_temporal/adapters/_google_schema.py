"""JSON schemas of tools, as far as Gemini takes them.  Pure.

Gemini refuses, or ignores, what lies outside its subset of JSON schema; what can be said otherwise is, and
what cannot is told to the model in the description.
"""

from typing import Any, Final

from helix_temporal.models._json import JsonObject

_KEPT: Final = (
    "type",
    "title",
    "description",
    "enum",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "required",
    "propertyOrdering",
)
_TOLD: Final = ("format", "pattern", "minLength", "maxLength", "multipleOf", "uniqueItems", "default")
_FORMATS: Final = {"date-time", "date", "time", "int32", "int64", "float", "double"}
_LISTS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
_MAPS: Final = {"properties": "properties", "$defs": "$defs", "definitions": "$defs"}


def gemini_schema(schema: JsonObject) -> JsonObject | None:
    """The parameters of a tool in Gemini's subset; None for a tool without any."""
    converted = _convert(schema)
    if not converted.get("properties") and not isinstance(converted.get("additionalProperties"), dict):
        return None
    return {"type": "object", **converted}


def _convert(schema: Any) -> JsonObject:
    if not isinstance(schema, dict):
        # True and False are schemas, too: there is no way to say False.
        return {}
    if "$ref" in schema:
        # Nothing may stand beside a reference.
        reference: JsonObject = {"$ref": str(schema["$ref"]).replace("#/definitions/", "#/$defs/")}
        defs = {name: value for name, value in _maps(schema).items() if name == "$defs"}
        return reference | defs
    schema = _merged(schema)
    new: JsonObject = {name: schema[name] for name in _KEPT if name in schema}
    new |= _maps(schema)
    new |= _lists(schema)
    if isinstance(schema.get("items"), dict):
        new["items"] = _convert(schema["items"])
    if "additionalProperties" in schema:
        more = schema["additionalProperties"]
        new["additionalProperties"] = _convert(more) if isinstance(more, dict) else bool(more)
    _bounds(schema, new)
    _choices(schema, new)
    _hints(schema, new)
    return new


def _maps(schema: JsonObject) -> JsonObject:
    new: dict[str, Any] = {}
    for name, known in _MAPS.items():
        inner = schema.get(name)
        if isinstance(inner, dict):
            new[known] = new.get(known, {}) | {key: _convert(value) for key, value in inner.items()}
    return new


def _lists(schema: JsonObject) -> JsonObject:
    given = dict(schema)
    if isinstance(given.get("items"), list):
        # How older drafts write it.
        given["prefixItems"] = given["items"]
    new: dict[str, Any] = {}
    for name, known in _LISTS.items():
        inner = given.get(name)
        if isinstance(inner, list) and inner:
            new[known] = [*new.get(known, []), *map(_convert, inner)]
    return new


def _merged(schema: JsonObject) -> JsonObject:
    """The schema with its ``allOf`` in it: properties and what is required add up."""
    parts = schema.get("allOf")
    if not isinstance(parts, list):
        return schema
    own = {name: value for name, value in schema.items() if name != "allOf"}
    if len(parts) == 1 and isinstance(parts[0], dict) and "$ref" in parts[0]:
        return {"anyOf": parts, **own}
    new: dict[str, Any] = {}
    for part in [*parts, own]:
        each: Any = _merged(part) if isinstance(part, dict) else {}
        properties = _object(new.get("properties")) | _object(each.get("properties"))
        required = _names(new.get("required")) + _names(each.get("required"))
        new = {**new, **each}
        if properties:
            new["properties"] = properties
        if required:
            new["required"] = [*dict.fromkeys(required)]
    return new


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _bounds(schema: JsonObject, new: JsonObject) -> None:
    whole = schema.get("type") == "integer"
    for name, known, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = schema.get(name)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            new.setdefault(known, bound + step if whole else bound)


def _choices(schema: JsonObject, new: JsonObject) -> None:
    """Only texts and numbers can be listed; null is a type, and truth has but two values."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(choices, list):
        return
    usable = [each for each in choices if isinstance(each, str | int | float) and not isinstance(each, bool)]
    new.pop("enum", None)
    if usable and len(usable) >= len(choices) - (None in choices):
        new["enum"] = [*usable]
        if None in choices and isinstance(new.get("type"), str):
            new["type"] = [new["type"], "null"]
        elif "type" not in new and all(isinstance(each, str) for each in usable):
            new["type"] = "string" if None not in choices else ["string", "null"]
    else:
        _tell(new, f"one of {choices}")


def _hints(schema: JsonObject, new: JsonObject) -> None:
    if isinstance(schema.get("format"), str) and schema["format"] in _FORMATS:
        new["format"] = schema["format"]
    for name in _TOLD:
        if name in schema and name not in new:
            _tell(new, f"{name}: {schema[name]}")


def _tell(new: JsonObject, hint: str) -> None:
    new["description"] = f"{new.get('description') or ''} ({hint})".strip()
