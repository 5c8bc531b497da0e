"""How many tokens a message is, roughly: enough to choose what a model gets, not to bill anybody."""

from collections.abc import Callable, Sequence
from typing import Final

from helix_temporal.models._json import JsonObject, dumps
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import Record

CountTokens = Callable[[Message], int]
"""Gives the tokens of one message, with whatever the provider adds for it."""

MESSAGE_TOKENS: Final = 4
IMAGE_TOKENS: Final = 1_500
"""Of an image, whatever its size: providers scale large ones down."""
FILE_TOKENS: Final = 1_500
FILE_BYTES: Final = 50 * 1024
"""A file that is no text has `FILE_TOKENS` for each of so many bytes begun: about a page of PDF."""
_TEXT_BYTES: Final = 4
_JSON_BYTES: Final = 3


def estimate_tokens(message: Message) -> int:
    """The tokens of a message, estimated without a tokenizer.

    Four bytes of UTF-8 text are one token, three of JSON are; an image is 1,500, whether it is there or
    behind a URL; a file that is no text 1,500 for each 50 KiB begun; each message 4 more.  English and code
    come out within some 20 %, other languages further off: give ``count_tokens`` where that matters.
    """
    content = message.content
    count = _text(content) if isinstance(content, str) else sum(_part(part) for part in content)
    calls = sum(len(dumps(call.arguments)) + len(call.name) for call in message.tool_calls)
    return MESSAGE_TOKENS + count + -(-calls // _JSON_BYTES)


def _text(text: str) -> int:
    return -(-len(text.encode(errors="surrogatepass")) // _TEXT_BYTES)


def _part(part: JsonObject) -> int:
    match part.get("type"):
        case "text" | "thinking":
            return _text(str(part.get("text", "")))
        case "image":
            return IMAGE_TOKENS
        case "file":
            return _file(str(part.get("media_type", "")), part.get("data"))
    # Adapters leave out what they do not know.
    return 0


def _file(media_type: str, data: object) -> int:
    if not isinstance(data, str):
        return FILE_TOKENS
    size = len(data) * 3 // 4
    if media_type.startswith("text/"):
        return -(-size // _TEXT_BYTES)
    return FILE_TOKENS * max(1, -(-size // FILE_BYTES))


class Decoded:
    """Records as messages: each is decoded and counted once, and only where one is looked at."""

    def __init__(
        self,
        records: Sequence[Record],
        messages: dict[int, Message] | None = None,
        tokens: dict[int, int] | None = None,
    ) -> None:
        self._records = records
        # By their distance from the end, so that a part of the records shares what is known of all.
        self._messages = {} if messages is None else messages
        self._tokens = {} if tokens is None else tokens

    def last(self, count: int) -> "Decoded":
        """The last so many of the records; what was decoded or counted is known to both."""
        return Decoded(self._records[len(self._records) - count :], self._messages, self._tokens)

    def __getitem__(self, at: int) -> Message:
        """The message at a place."""
        place = len(self._records) - at
        found = self._messages.get(place)
        if found is None:
            found = self._messages[place] = from_record(self._records[at])
        return found

    def tokens(self, at: int, count: CountTokens) -> int:
        """Its tokens."""
        place = len(self._records) - at
        found = self._tokens.get(place)
        if found is None:
            found = self._tokens[place] = max(count(self[at]), 0)
        return found
