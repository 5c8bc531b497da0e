"""Rows of other systems as messages of ours, for files that are read by people and by other programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue, ValidationError

from helix_temporal.errors import HelixError
from helix_temporal.models.base import JsonObject
from helix_temporal.models.foreign_rows import find_said, read_foreign_row
from helix_temporal.models.foreign_rows.row import ForeignRow, NamedCall
from helix_temporal.models.limits import MAX_MESSAGE_BYTES
from helix_temporal.models.messages import (
    Message,
    ToolCall,
    decode_message,
    encode_message,
    text_part,
)
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.views.foreign_calls import find_arguments, find_result

_MOST: Final = MAX_MESSAGE_BYTES // 2
"""Bytes of rows that become one message."""
_UNNAMED: Final = "unnamed"
"""The tool of a call whose row does not name it, such as a question whether another call may be made."""


@dataclass(slots=True)
class ForeignMessages:
    """Translates the messages of one session, in their order; messages of ours stay as they are.

    Frameworks write an answer in several rows: its thoughts, its text, and each of its calls.  They become
    one message, as providers want the calls of an answer together.  A row that says nothing (a mark, or a
    thought that only its provider reads) is left out; one that cannot be read, or answers a call that is not
    there, stays as it is.
    """

    _answer: Message | None = None
    _bytes: int = 0
    _open_calls: list[NamedCall] = field(default_factory=list)
    _unnamed: int = 0

    def translate(self, stored: StoredMessage) -> Iterator[StoredMessage]:
        """What is to be written now that this message has come."""
        try:
            message = decode_message(stored)
            row = read_foreign_row(message)
            translated = None if row is None else list(self._translate_row(stored, message, row))
        except (HelixError, ValidationError):
            translated = None
        yield from [*self.finish(), stored] if translated is None else translated

    def _translate_row(
        self, stored: StoredMessage, message: Message, row: ForeignRow
    ) -> Iterator[StoredMessage]:
        """What is to be written now that this row has come.

        Raises:
            ValidationError: It has something that no message of ours may have, such as a name of a megabyte.
        """
        said = find_said(stored)
        if row.results and not any(
            _is_answer(call, each) for each in row.results for call in self._known(row)
        ):
            yield from [*self.finish(), stored]
            return
        own, answered = self._split_results(row)
        if answered or (said is not None and said.role != "assistant"):
            yield from self.finish()
        yield from (self._make_result(message, each) for each in answered)
        if row.calls or (said is not None and said.role == "assistant"):
            yield from self._add_to_answer(message, row, said, len(stored.body))
        elif said is not None:
            yield encode_message(said)
        if own:
            yield from self.finish()
            yield from (self._make_result(message, each) for each in own)

    def finish(self) -> Iterator[StoredMessage]:
        """The answer whose rows have come so far, if there is one."""
        if self._answer is not None:
            yield encode_message(self._answer)
        self._answer, self._bytes = None, 0

    def _known(self, row: ForeignRow) -> list[NamedCall]:
        return [*self._open_calls, *row.calls]

    def _split_results(self, row: ForeignRow) -> tuple[list[NamedCall], list[NamedCall]]:
        """Results of calls of the same row, and those of earlier ones."""
        own = [each for each in row.results if each in row.calls]
        return own, [each for each in row.results if each not in own]

    def _add_to_answer(
        self, message: Message, row: ForeignRow, said: Message | None, size: int
    ) -> Iterator[StoredMessage]:
        before = self._answer
        is_same = before is None or row.calls or before.tool_calls or not before.text
        if not is_same or self._bytes + size > _MOST:
            yield from self.finish()
            before = None
        content = "" if said is None else said.content
        calls = tuple(self._make_call(message, each) for each in row.calls)
        if before is None:
            self._answer = Message(id=message.id, role="assistant", content=content, tool_calls=calls)
        else:
            joined = _join_contents(before.content, content)
            self._answer = before.model_copy(
                update={"content": joined, "tool_calls": (*before.tool_calls, *calls)}
            )
        self._bytes += size

    def _make_call(self, message: Message, call: NamedCall) -> ToolCall:
        if call.id is None:
            self._unnamed += 1
        call_id = f"call-{self._unnamed}" if call.id is None else call.id
        self._open_calls.append(NamedCall(call_id, call.name))
        arguments = _make_arguments(find_arguments(message, call.id, call.name))
        return ToolCall(id=call_id, name=call.name or _UNNAMED, arguments=arguments)

    def _make_result(self, message: Message, result: NamedCall) -> StoredMessage:
        """A result, with the id and the name that its call has."""
        call = next((each for each in self._open_calls if _is_answer(each, result)), result)
        if call in self._open_calls:
            self._open_calls.remove(call)
        found = find_result(message, result.id, result.name)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        name = result.name or call.name
        return encode_message(
            Message(id=message.id, role="tool", content=text, tool_call_id=call.id or "", name=name)
        )


def _is_answer(call: NamedCall, result: NamedCall) -> bool:
    return call.id == result.id if result.id is not None else call.name == result.name


def _make_arguments(found: JsonValue) -> JsonObject:
    if isinstance(found, dict):
        return found
    return {} if found in (None, "") else {"input": found}


def _join_contents(
    first: str | Sequence[JsonObject], second: str | Sequence[JsonObject]
) -> str | list[JsonObject]:
    if not first or not second:
        return _plain(first or second)
    return [*_list_parts(first), *_list_parts(second)]


def _plain(content: str | Sequence[JsonObject]) -> str | list[JsonObject]:
    return content if isinstance(content, str) else list(content)


def _list_parts(content: str | Sequence[JsonObject]) -> list[JsonObject]:
    return [text_part(content)] if isinstance(content, str) else list(content)
