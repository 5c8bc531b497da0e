"""Texts that are taken out of a session before it is written: `Redaction`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from helix_temporal.errors import HelixError, InvalidRequestError
from helix_temporal.models.base import JsonObject, canonical_json
from helix_temporal.models.messages import decode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.session_files.contents import SessionContents
from helix_temporal.session_files.file import FileSession, read_body

REDACTED: Final = "[redacted]"
"""What stands for a text that was taken out."""
_NAME: Final = "redacted-"

_FREE: Final = frozenset({"custom_state", "values", "metadata", "output", "arguments", "content", "custom"})
"""Fields whose contents are the application's: their keys and numbers are looked at as well."""
_WORDS: Final = frozenset({"role", "status", "kind", "format", "mode", "finish", "wait_mode", "outcome"})
"""Fields that hold words of ours alone."""
_TYPES: Final = frozenset({"text", "image", "file", "thinking"})
_IDS: Final = frozenset({
    "id", "session_id", "parent", "parent_session_id", "root_session_id", "sub_session_id", "thread_id",
    "run_id", "step_id", "last_id", "tool_call_id", "parent_tool_call_id", "stream_id", "user_id",
    "workflow_id", "workflow_run_id", "checkpoint_id",
})  # fmt: skip
"""Fields that name something: what is named twice must have one name afterwards, too."""


class Redaction:
    """Replaces what matches patterns, in everything that is written of a session.

    Ids that match become ``redacted-1``, ``redacted-2`` … in the order in which they come.  Fixed words of
    the format (roles, states), times and counts stay.  What a model's adapter keeps of its answers is left
    out whole: texts stand in it a second time, in forms that no pattern finds.

    Args:
        patterns: Regular expressions.

    Raises:
        InvalidRequestError: One is none, or matches an empty text, or what is put in place of texts.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [_compile_pattern(each) for each in patterns]
        self._names: dict[str, str] = {}

    def redact_contents(self, contents: SessionContents) -> SessionContents:
        """The session without what matches; where its messages are stays as it was.

        Raises:
            InvalidRequestError: A pattern matches what the format needs.
        """
        plain = contents.part.model_dump(mode="json", exclude_defaults=True)
        try:
            part = FileSession.model_validate(self.redact_object(plain))
            part.read_state()
            part.read_record()
        except (ValidationError, HelixError) as error:
            raise _too_wide_error("the session's state", error) from None
        return replace(
            contents,
            part=part,
            children=tuple(map(self.redact_object, contents.children)),
            runs=tuple(map(self.redact_object, contents.runs)),
            usage=tuple(map(self.redact_object, contents.usage)),
        )

    def redact_message(self, message: StoredMessage) -> StoredMessage:
        """The message without what matches.

        Raises:
            InvalidRequestError: A pattern matches what the format needs.
        """
        message_id, body = self.redact_id(message.id), read_body(message)
        if body is None:
            text = self.redact_text(message.body.decode("utf-8", "surrogateescape"))
            return StoredMessage(message.kind, message_id, text.encode("utf-8", "surrogateescape"))
        body.pop("provider", None)
        redacted = StoredMessage(message.kind, message_id, canonical_json(self.redact_object(body)))
        try:
            decode_message(redacted)
        except HelixError as error:
            raise _too_wide_error("a message", error) from None
        return redacted

    def redact_object(self, plain: JsonObject) -> JsonObject:
        """An object of ours without what matches; its own fields keep their names."""
        return {name: self._redact_field(name, value) for name, value in plain.items()}

    def _redact_field(self, name: str, value: Any) -> Any:
        if name in _FREE:
            return self._redact_free(value)
        if isinstance(value, str):
            if name in _WORDS:
                return value
            return self.redact_id(value) if name in _IDS else self.redact_text(value)
        if isinstance(value, list):
            return [self._redact_field(name, each) for each in value]
        return self.redact_object(value) if isinstance(value, dict) else value

    def _redact_free(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self._redact_free(each) for each in value]
        if isinstance(value, dict):
            return self._redact_mapping(value)
        if isinstance(value, bool) or value is None:
            return value
        return REDACTED if self.matches(str(value)) else value

    def _redact_mapping(self, value: dict[str, Any]) -> JsonObject:
        redacted: JsonObject = {}
        for key, each in value.items():
            name, number = self.redact_text(key), 2
            while name != key and (name in redacted or name in value):
                name, number = f"{self.redact_text(key)} {number}", number + 1
            kept = key == "type" and isinstance(each, str) and each in _TYPES
            redacted[name] = each if kept else self._redact_free(each)
        return redacted

    def redact_text(self, text: str) -> str:
        """The text without what matches."""
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def redact_id(self, name: str) -> str:
        """An id of which no part matches: the same for the same id; of a sub-agent's, part by part."""
        return ">".join(self._redact_name(each) for each in name.split(">"))

    def _redact_name(self, name: str) -> str:
        if not self.matches(name):
            return name
        return self._names.setdefault(name, f"{_NAME}{len(self._names) + 1}")

    def matches(self, text: str) -> bool:
        """Whether a text has something to take out."""
        return any(pattern.search(text) for pattern in self._patterns)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidRequestError(f"pattern {pattern!r}: no regular expression: {error}") from None
    if compiled.search(""):
        raise InvalidRequestError(f"pattern {pattern!r}: it matches an empty text, and so everything")
    if compiled.search(REDACTED) or compiled.search(f"{_NAME}1"):
        raise InvalidRequestError(
            f"pattern {pattern!r}: it matches what stands in place of texts: {REDACTED}"
        )
    return compiled


def _too_wide_error(what: str, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(
        f"a pattern matches what the file needs to be read, in {what} ({type(error).__name__}); take a "
        "narrower one"
    )
