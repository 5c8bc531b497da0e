"""Gemini: `GoogleModel`, requests and answers in its form, and JSON schemas of tools as far as it takes them.

Gemini refuses, or ignores, what lies outside its subset of JSON schema; what can be said otherwise is, and
what cannot is told to the model in the description.
"""

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from google.genai import Client, errors, types
from pydantic import ValidationError

from helix_temporal.adapters._answers import (
    as_json,
    attach_provider_raw,
    finish_of,
    made_id,
    sent_arguments,
    sent_name,
    tool_call,
)
from helix_temporal.adapters._http import (
    cut_off,
    error_for_connection_failure,
    error_for_status,
    refuse_own_options,
)
from helix_temporal.adapters._messages import Outgoing, prepare_outgoing
from helix_temporal.errors import HelixError, InvalidConfigError, ModelRequestError, ModelUnavailableError
from helix_temporal.models import messages
from helix_temporal.models.agents import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolSpec,
)
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage

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
    converted = _convert_schema(schema)
    if not converted.get("properties") and not isinstance(converted.get("additionalProperties"), dict):
        return None
    return {"type": "object", **converted}


def _convert_schema(schema: Any) -> JsonObject:
    if not isinstance(schema, dict):
        # True and False are schemas, too: there is no way to say False.
        return {}
    if "$ref" in schema:
        # Nothing may stand beside a reference.
        reference: JsonObject = {"$ref": str(schema["$ref"]).replace("#/definitions/", "#/$defs/")}
        defs = {name: value for name, value in _convert_schema_maps(schema).items() if name == "$defs"}
        return reference | defs
    schema = _merge_all_of(schema)
    new: JsonObject = {name: schema[name] for name in _KEPT if name in schema}
    new |= _convert_schema_maps(schema)
    new |= _convert_schema_lists(schema)
    if isinstance(schema.get("items"), dict):
        new["items"] = _convert_schema(schema["items"])
    if "additionalProperties" in schema:
        more = schema["additionalProperties"]
        new["additionalProperties"] = _convert_schema(more) if isinstance(more, dict) else bool(more)
    _add_bounds(schema, new)
    _add_choices(schema, new)
    _add_hints(schema, new)
    return new


def _convert_schema_maps(schema: JsonObject) -> JsonObject:
    new: dict[str, Any] = {}
    for name, field in _MAPS.items():
        inner = schema.get(name)
        if isinstance(inner, dict):
            new[field] = new.get(field, {}) | {key: _convert_schema(value) for key, value in inner.items()}
    return new


def _convert_schema_lists(schema: JsonObject) -> JsonObject:
    given = dict(schema)
    if isinstance(given.get("items"), list):
        # How older drafts write it.
        given["prefixItems"] = given["items"]
    new: dict[str, Any] = {}
    for name, field in _LISTS.items():
        inner = given.get(name)
        if isinstance(inner, list) and inner:
            new[field] = [*new.get(field, []), *map(_convert_schema, inner)]
    return new


def _merge_all_of(schema: JsonObject) -> JsonObject:
    """The schema with its ``allOf`` in it: properties and what is required add up."""
    parts = schema.get("allOf")
    if not isinstance(parts, list):
        return schema
    own = {name: value for name, value in schema.items() if name != "allOf"}
    if len(parts) == 1 and isinstance(parts[0], dict) and "$ref" in parts[0]:
        return {"anyOf": parts, **own}
    new: dict[str, Any] = {}
    for part in [*parts, own]:
        each: Any = _merge_all_of(part) if isinstance(part, dict) else {}
        properties = _object_or_empty(new.get("properties")) | _object_or_empty(each.get("properties"))
        required = _names_or_empty(new.get("required")) + _names_or_empty(each.get("required"))
        new = {**new, **each}
        if properties:
            new["properties"] = properties
        if required:
            new["required"] = [*dict.fromkeys(required)]
    return new


def _object_or_empty(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _names_or_empty(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _add_bounds(schema: JsonObject, new: JsonObject) -> None:
    whole = schema.get("type") == "integer"
    for name, field, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = schema.get(name)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            new.setdefault(field, bound + step if whole else bound)


def _add_choices(schema: JsonObject, new: JsonObject) -> None:
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
        _append_to_description(new, f"one of {choices}")


def _add_hints(schema: JsonObject, new: JsonObject) -> None:
    if isinstance(schema.get("format"), str) and schema["format"] in _FORMATS:
        new["format"] = schema["format"]
    for name in _TOLD:
        if name in schema and name not in new:
            _append_to_description(new, f"{name}: {schema[name]}")


def _append_to_description(new: JsonObject, hint: str) -> None:
    new["description"] = f"{new.get('description') or ''} ({hint})".strip()


NAME: Final = "google"

_BEGAN: Final = "(The beginning of this conversation is not shown.)"
_FILES: Final = "https://generativelanguage.googleapis.com/v1beta/"
_SIGNATURE: Final = base64.urlsafe_b64encode(b"skip_thought_signature_validator").decode()
"""Stands for the signature of a call that another provider's model made: Gemini refuses calls without."""


def wire_contents(messages: Sequence[Message]) -> list[types.Content]:
    """The messages in turns of user and model; Gemini's own answers as they came."""
    turns: list[tuple[str, list[JsonObject]]] = []
    results = _Results()
    for each in prepare_outgoing(messages, NAME, _raw_ids):
        if each.message.role != "tool":
            _append_parts(turns, "user", results.take_attached())
        _append_parts(turns, *_wire_message(each, results))
    _append_parts(turns, "user", results.take_attached())
    if turns and turns[0][0] == "model":
        turns.insert(0, ("user", [{"text": _BEGAN}]))
    return [_request_content(role, parts) for role, parts in turns]


def _append_parts(turns: list[tuple[str, list[JsonObject]]], role: str, parts: Iterable[JsonObject]) -> None:
    new = list(parts)
    if new and turns and turns[-1][0] == role:
        turns[-1][1].extend(new)
    elif new:
        turns.append((role, new))


def _request_content(role: str, parts: Sequence[JsonObject]) -> types.Content:
    # As JSON text: only so does the library read bytes as base64.
    return types.Content.model_validate_json(as_json({"role": role, "parts": list(parts)}))


def wire_parts(content: types.Content) -> list[JsonObject]:
    """The parts of a content as JSON, with the names they have on the wire."""
    dumped: Any = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts: list[JsonObject] = dumped.get("parts", [])
    return parts


def wire_system(request: ModelRequest) -> str | None:
    """The instructions, with what else the thread says as the system."""
    texts = [request.instructions, *(each.text for each in request.messages if each.role == "system")]
    return "\n\n".join(text for text in texts if text.strip()) or None


def wire_tools(tools: Sequence[ToolSpec]) -> types.Tool:
    """The tools as the provider takes them."""
    return types.Tool(
        function_declarations=[
            types.FunctionDeclaration(
                name=wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=gemini_schema(tool.parameters),
            )
            for tool in tools
        ]
    )


def _raw_ids(raw: Any) -> Iterable[str]:
    # Ids that Gemini left out are not its own; such answers are matched by order.
    calls = [part["functionCall"] for part in raw if "functionCall" in part]
    return (str(call["id"]) for call in calls if call.get("id"))


def _wire_message(each: Outgoing, results: "_Results") -> tuple[str, list[JsonObject]]:
    message = each.message
    match message.role:
        case "assistant":
            parts = _readable_parts(each.raw)
            parts = wire_answer(message) if parts is None else parts
            results.expect_results(message, parts)
            return "model", parts
        case "user":
            parts = _readable_parts(each.raw)
            return "user", _wire_content(message) if parts is None else parts
        case "tool":
            return "user", results.build_result(message, _readable_parts(each.raw))
        case _:
            return "user", []


def _readable_parts(raw: Any) -> list[JsonObject] | None:
    """Gemini's own parts, if the library reads them: an older archive may hold what it does not know."""
    if raw is None:
        return None
    # Empty text is refused.
    parts = [part for part in raw if part != {"text": ""}]
    try:
        _request_content("model", parts)
    except ValidationError:
        return None
    return parts


def wire_answer(message: Message) -> list[JsonObject]:
    """An answer's parts: text and images, then calls; reasoning is not shown to another model."""
    parts = _wire_content(message)
    for place, call in enumerate(message.tool_calls):
        part: JsonObject = {"functionCall": {"args": sent_arguments(call), "name": wire_name(call.name)}}
        parts.append(part if place else {**part, "thoughtSignature": _SIGNATURE})
    return wire_parts(_request_content("model", parts)) if parts else []


def wire_name(name: str) -> str:
    """The name of a tool as Gemini takes it: it begins with a letter or an underscore."""
    fit = sent_name(name)
    return fit if fit[0].isalpha() or fit[0] == "_" else f"_{fit}"[:64]


@dataclass(slots=True)
class _GoogleCall:
    ours: str
    theirs: str | None
    name: str


class _Results:
    """Results find their calls by order, as Gemini need not give calls an id."""

    def __init__(self) -> None:
        self._open: list[_GoogleCall] = []
        self._attached: list[JsonObject] = []

    def expect_results(self, message: Message, parts: Sequence[JsonObject]) -> None:
        """An answer with these parts goes out; the results of its calls come next."""
        sent: list[Any] = [part["functionCall"] for part in parts if "functionCall" in part]
        self._open = [
            _GoogleCall(call.id, each.get("id"), each.get("name") or wire_name(call.name))
            for call, each in zip(message.tool_calls, sent, strict=False)
        ]

    def build_result(self, message: Message, raw: list[JsonObject] | None) -> list[JsonObject]:
        """The result as a part; what is no text in it is attached after all results."""
        at = next((at for at, call in enumerate(self._open) if call.ours == message.tool_call_id), None)
        call = (
            self._open.pop(at)
            if at is not None
            else _GoogleCall("", None, wire_name(message.name or "unnamed"))
        )
        if raw is not None:
            return raw
        files = [part for part in _wire_content(message) if "text" not in part]
        if files:
            self._attached += [{"text": f"From the result of {call.name}:"}, *files]
        response: JsonObject = {"error" if message.is_error else "output": message.text}
        part: JsonObject = {"name": call.name, "response": response}
        return [{"functionResponse": part if call.theirs is None else {"id": call.theirs, **part}}]

    def take_attached(self) -> list[JsonObject]:
        """What is attached and was not taken yet."""
        taken, self._attached = self._attached, []
        return taken


def _wire_content(message: Message) -> list[JsonObject]:
    if isinstance(message.content, str):
        # Parts without text are refused.
        return [{"text": message.content}] if message.content else []
    return [wired for part in message.content if (wired := _wire_part(part)) is not None]


def _wire_part(part: JsonObject) -> JsonObject | None:
    kind = part.get("type")
    if kind == "text":
        return {"text": str(part["text"])} if part.get("text") else None
    if kind not in {"image", "file"}:
        return None
    media_type = str(part.get("media_type") or "")
    if part.get("data"):
        return _inline_data_part(
            str(part["data"]), media_type or ("image/png" if kind == "image" else ""), part
        )
    place = _file_uri(part)
    if place is None:
        return {"text": f"({part.get('name') or 'a file'} can't be shown to this model.)"}
    media_type = media_type or mimetypes.guess_type(place.partition("?")[0])[0] or ""
    file: JsonObject = {"fileUri": place}
    return {"fileData": file | {"mimeType": media_type} if media_type else file}


def _inline_data_part(data: str, media_type: str, part: JsonObject) -> JsonObject:
    try:
        # The library's own base64 is the one for URLs.
        same = base64.urlsafe_b64encode(base64.b64decode(data.translate(_URL_SIGNS), validate=True))
    except (binascii.Error, ValueError):
        return {"text": f"({part.get('name') or 'a file'} is damaged and can't be shown.)"}
    return {"inlineData": {"data": same.decode(), "mimeType": media_type or "application/octet-stream"}}


_URL_SIGNS: Final = str.maketrans("-_", "+/")


def _file_uri(part: JsonObject) -> str | None:
    """Where the file is; None for one that another provider keeps."""
    if part.get("url"):
        return str(part["url"])
    file_id = str(part.get("file_id") or "")
    if file_id.startswith("files/"):
        return _FILES + file_id
    return file_id if "://" in file_id else None


CONTINUES: Final = "CONTINUATION"
"""The answer is longer than one request may give: it goes on in another one."""

_MALFORMED: Final = "MALFORMED_FUNCTION_CALL"
_WITHHELD: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)
_FAILED: Final = frozenset({"OTHER", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})


class GoogleAnswer:
    """One answer as it comes, in one stream or several that follow each other.

    Attributes:
        finish_reason: Why it stopped, in Gemini's words; None while it has not.
        continuation: What the next request needs to go on.
    """

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._names = {wire_name(tool.name): tool.name for tool in request.tools}
        self._parts: list[JsonObject] = []
        self._before = Usage()
        self._usage: Usage | None = None
        self._message: str | None = None
        self.finish_reason: str | None = None
        self.continuation: bytes | None = None

    def begin_stream(self) -> None:
        """A stream begins; what it gives follows what is there."""
        self._before = self._before + (self._usage or Usage())
        self.finish_reason = self.continuation = self._usage = None

    def add_event(self, chunk: types.GenerateContentResponse) -> Iterator[ModelEvent]:
        """Take a piece; what is new in it."""
        self._usage = _usage_of_metadata(chunk.usage_metadata) or self._usage
        blocked = chunk.prompt_feedback.block_reason if chunk.prompt_feedback is not None else None
        if blocked is not None:
            self.finish_reason = "PROHIBITED_CONTENT"
        if not chunk.candidates:
            return
        candidate = chunk.candidates[0]
        if candidate.content is not None:
            for part in wire_parts(candidate.content):
                yield from self._add_part(part)
        if candidate.finish_reason is not None:
            self.finish_reason = str(candidate.finish_reason.value)
            self._message = candidate.finish_message
        # Libraries before 3 don't know it.
        self.continuation = getattr(candidate, "continuation_token", None) or self.continuation

    def _add_part(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        call, text = part.get("functionCall"), part.get("text")
        if call is not None:
            call_id = storable_text(call.get("id") or made_id(self._request, self._count_calls()))[:256]
            yield ToolCallStarted(call_id, storable_text(self._tool_name_of(call))[:128] or "unnamed")
            yield ToolArgumentsDelta(call_id, storable_text(as_json(call.get("args") or {})))
        elif text:
            yield (
                ReasoningDelta(storable_text(text)) if part.get("thought") else TextDelta(storable_text(text))
            )
        if _continues_last_part(self._parts, part):
            self._parts[-1]["text"] = str(self._parts[-1]["text"]) + str(text)
        elif part not in ({"text": ""}, {}, {"text": "", "thought": True}):
            self._parts.append(part)

    def _tool_name_of(self, call: dict[str, Any]) -> str:
        told = str(call.get("name") or "")
        return self._names.get(told, told)

    def _count_calls(self) -> int:
        return sum("functionCall" in part for part in self._parts)

    def build_response(self) -> ModelResponse:
        """All of it.

        Raises:
            ModelUnavailableError: The model failed to say anything; another attempt may do better.
        """
        reason = self.finish_reason or ""
        if reason == _MALFORMED:
            self._parts.append(self._malformed_call())
        elif reason in _FAILED and not self._parts:
            raise ModelUnavailableError(f"Gemini gave no answer: {reason}; it is called again", provider=NAME)
        calls = tuple(self._tool_calls())
        usage = None if self._usage is None else self._before + self._usage
        response = ModelResponse(
            content=_content_of_parts(self._parts),
            tool_calls=calls,
            usage=usage,
            stop_reason=reason,
            finish=finish_of(_finish_of_reason(reason), calls),
        )
        return attach_provider_raw(NAME, response, [*self._parts], wire_answer)

    def _malformed_call(self) -> JsonObject:
        """A call that Gemini could not read itself, as one whose arguments could not be read."""
        said = storable_text(self._message or "malformed function call")
        names = [tool.name for tool in self._request.tools]
        # Only Vertex AI tells what was called.
        name = (
            names[0] if len(names) == 1 else max((n for n in names if n in said), key=len, default="unnamed")
        )
        return {"functionCall": {"args": {_UNREAD: said}, "name": name}}

    def _tool_calls(self) -> Iterator[ToolCall]:
        made = 0
        for part in self._parts:
            call: Any = part.get("functionCall")
            if call is not None:
                args = call.get("args") or {}
                unread = args.get(_UNREAD) if self.finish_reason == _MALFORMED else None
                call_id = call.get("id") or made_id(self._request, made)
                yield tool_call(call_id, self._tool_name_of(call), args if unread is None else unread)
                made += 1


_UNREAD: Final = "INVALID_JSON"


def _continues_last_part(before: list[JsonObject], part: JsonObject) -> bool:
    """Whether it is more of the same text.  What is signed must stay apart from what is not."""
    texts = [{"text", "thought"} >= each.keys() and "text" in each for each in (*before[-1:], part)]
    return len(texts) == 2 and all(texts) and before[-1].get("thought") == part.get("thought")


def _finish_of_reason(reason: str) -> Finish:
    if reason in _WITHHELD:
        return Finish.CONTENT_FILTER
    return Finish.LENGTH if reason in {"MAX_TOKENS", CONTINUES} else Finish.STOP


def _content_of_parts(said: list[JsonObject]) -> str | list[JsonObject]:
    """Text alone is text; reasoning and images are parts of their own."""
    found: list[JsonObject] = []
    for part in said:
        text, blob = part.get("text"), part.get("inlineData")
        if text:
            new = (messages.thinking_part if part.get("thought") else messages.text_part)(
                storable_text(str(text))
            )
            if found and found[-1]["type"] == new["type"]:
                new["text"] = str(found.pop()["text"]) + str(new["text"])
            found.append(new)
        elif isinstance(blob, dict) and blob.get("data"):
            data = base64.b64encode(base64.urlsafe_b64decode(str(blob["data"]))).decode()
            kind = (
                messages.image_part
                if str(blob.get("mimeType", "")).startswith("image/")
                else messages.file_part
            )
            found.append(kind(media_type=str(blob.get("mimeType", "")), data=data))
    if not found:
        return ""
    if len(found) == 1 and found[0]["type"] == "text":
        return str(found[0]["text"])
    return found


def _usage_of_metadata(told: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    """Gemini counts reasoning apart from the answer, and what was cached with the rest."""
    if told is None:
        return None
    thought = told.thoughts_token_count or 0
    return Usage(
        input_tokens=(told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0),
        output_tokens=(told.candidates_token_count or 0) + thought,
        cached_read_tokens=told.cached_content_token_count or 0,
        reasoning_tokens=thought,
    )


PROVIDER: Final = "Google"

_MOST_HOPS: Final = 16
_OURS: Final = frozenset(
    {
        "system_instruction",
        "candidate_count",
        "automatic_function_calling",
        "automatic_continuation",
        "continuation_token",
        "cached_content",
    }
)


class GoogleModel:
    """A Gemini model that streams.

    Repeating is left to Temporal: the client's own retries are off, and so is its calling of functions.
    Keys are read by the client, in the worker, and are in no request of ours.

    Gemini caches the beginning of prompts by itself.  Caches that are made and named explicitly are not
    used: a name says nothing of what is in it, so that after an edit or a fork it would bring back what was
    taken away.

    Args:
        model: Its name, such as ``gemini-3-pro``.
        client: Your own, with key or project; otherwise one is made at the first call, from
            ``GEMINI_API_KEY`` and the other variables that the library reads.
        options: Further fields of ``GenerateContentConfig``, such as ``temperature``, ``thinking_config``,
            ``tool_config``, ``safety_settings``; ``tools`` come after the agent's.

    Raises:
        InvalidConfigError: ``options`` has a field that the adapter itself fills in, or one that the
            library does not know.
    """

    adapter: Final = NAME

    def __init__(self, model: str, client: Client | None = None, **options: Any) -> None:
        refuse_own_options("GoogleModel", _OURS, options)
        try:
            self._config = types.GenerateContentConfig(**options)
        except ValidationError as error:
            wrong = ", ".join(sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]}))
            raise InvalidConfigError(f"GoogleModel: the library does not take the options {wrong}") from None
        self._config.automatic_function_calling = types.AutomaticFunctionCallingConfig(disable=True)
        self._config.http_options = _without_retries(self._config.http_options)
        if "automatic_continuation" in types.GenerateContentConfig.model_fields:
            self._config.automatic_continuation = False
        self._model = model
        self._given, self._client = client, client

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text, reasoning and calls as they come, and the whole answer last.

        Raises:
            ModelRateLimitedError: Asked to slow down.
            ModelUnavailableError: No answer, or a failure of the provider's.
            ModelStreamEndedError: The stream broke off.
            ModelRequestError: Refused: key, model or input must be mended.
            InvalidConfigError: There is no key.
        """
        config = self._build_config(request)
        contents = wire_contents(request.messages)
        answer = GoogleAnswer(request)
        for _ in range(_MOST_HOPS):
            answer.begin_stream()
            async with aclosing(self._stream_chunks(contents, config)) as chunks:
                async for chunk in chunks:
                    for event in answer.add_event(chunk):
                        yield event
            if answer.finish_reason is None:
                raise cut_off(PROVIDER, "no finish reason")
            if answer.finish_reason != CONTINUES or answer.continuation is None:
                break
            config = config.model_copy(update={"continuation_token": answer.continuation})
        yield answer.build_response()

    async def aclose(self) -> None:
        """Close the connections of the client that the adapter made; one that was given stays open."""
        if self._given is None and self._client is not None:
            client, self._client = self._client, None
            await client.aio.aclose()
            client.close()

    def _build_config(self, request: ModelRequest) -> types.GenerateContentConfig:
        tools = [*([wire_tools(request.tools)] if request.tools else []), *(self._config.tools or ())]
        return self._config.model_copy(
            update={"system_instruction": wire_system(request), "tools": tools or None}
        )

    async def _stream_chunks(
        self, contents: list[types.Content], config: types.GenerateContentConfig
    ) -> AsyncGenerator[types.GenerateContentResponse, None]:
        began = False
        try:
            models = self._get_client().aio.models
            given: Any = contents
            answer: Any = await models.generate_content_stream(
                model=self._model, contents=given, config=config
            )
            async with aclosing(answer):
                async for chunk in answer:
                    began = True
                    yield chunk
        except HelixError:
            raise
        except Exception as error:  # noqa: BLE001 (which errors of connections come, depends on what is installed)
            raise _convert_error(error, began) from None

    def _get_client(self) -> Client:
        if self._client is None:
            try:
                self._client = Client()
            except ValueError:
                raise InvalidConfigError("no key for Google: give a client, or set GEMINI_API_KEY") from None
        return self._client


def _without_retries(given: types.HttpOptions | None) -> types.HttpOptions:
    options = types.HttpOptions() if given is None else given.model_copy()
    options.retry_options = types.HttpRetryOptions(attempts=1)
    return options


def _convert_error(error: Exception, began: bool) -> HelixError:
    """The error as ours, without what it carries: the library puts answers into its messages."""
    if isinstance(error, errors.APIError):
        return _convert_api_error(error)
    if began:
        return cut_off(PROVIDER, type(error).__name__)
    passing = isinstance(error, json.JSONDecodeError | errors.UnknownApiResponseError)
    if isinstance(error, ValueError | TypeError) and not passing:
        return ModelRequestError(
            f"the library of Google refuses to send the request: {type(error).__name__}; "
            "check the options in the worker",
            provider=PROVIDER,
        )
    return error_for_connection_failure(PROVIDER, error)


def _convert_api_error(error: errors.APIError) -> HelixError:
    headers = {str(name).lower(): str(value) for name, value in _response_headers(error).items()}
    delay = _retry_delay(error.details)
    if delay is not None:
        headers["retry-after-ms"] = delay
    # An error within a stream need not say its code.
    code: Any = error.code
    return error_for_status(PROVIDER, code if isinstance(code, int) else 500, error.status, headers)


def _response_headers(error: errors.APIError) -> dict[str, Any]:
    return dict(getattr(error.response, "headers", None) or {})


def _retry_delay(details: Any) -> str | None:
    """Milliseconds of the ``RetryInfo`` in an error; None if it has none."""
    inner = details.get("error", details) if isinstance(details, dict) else {}
    told = inner.get("details") if isinstance(inner, dict) else None
    for each in told if isinstance(told, list) else ():
        if isinstance(each, dict) and str(each.get("@type", "")).endswith("google.rpc.RetryInfo"):
            seconds = str(each.get("retryDelay", "")).removesuffix("s")
            return str(float(seconds) * 1000) if seconds.replace(".", "", 1).isdecimal() else None
    return None
