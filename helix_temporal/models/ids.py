"""Ids: what is accepted, and how one becomes part of a key, an object name or a file name.

An id is 1–256 characters and at most 512 bytes of UTF-8 without control characters.  Nothing is
normalised: two spellings of one letter are two ids.  In keys ``[A-Za-z0-9_-]`` stand for themselves
and every other byte is ``~hh``; a form over 120 bytes becomes its first 60 characters, ``~`` and 32
hex digits of the id's SHA-256 — stores keep the original beside it and compare it on read.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.deployments import DEFAULT_NAME

SESSION_WORKFLOW: Final = "helix.session"
"""The type of a session's workflow."""
ASK_AGAIN: Final = "helix.ask_again"
"""The type of an update's refusal by a run that ends, or lets go those who wait: it is to be sent again."""
MAX_CHARACTERS = 256
MAX_BYTES = 512
MAX_ENCODED = 120

_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ENCODED = re.compile(r"(?:[A-Za-z0-9_-]|~[0-9a-f]{2})+")
_SHORTENED = re.compile(r".{60}~[0-9a-f]{32}")
_HEX = re.compile(rb"~([0-9a-f]{2})")

_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def validate_id(value: object, what: str = "id") -> str:
    """Return ``value`` if it is an acceptable id.

    Raises:
        InvalidIdError: It is not text, empty, too long, or holds a control character or a lone
            surrogate; the message says which and where.
    """
    if not isinstance(value, str):
        raise InvalidIdError(f"{what}: text expected, got {type(value).__name__}")
    if not value:
        raise InvalidIdError(f"{what}: empty")
    if len(value) > MAX_CHARACTERS:
        raise InvalidIdError(f"{what}: {len(value)} characters, at most {MAX_CHARACTERS} allowed")
    if value.isascii() and value.isprintable():
        return value
    refused = _REFUSED.search(value)
    if refused is not None:
        if "\ud800" <= refused[0] <= "\udfff":
            raise InvalidIdError(f"{what}: lone surrogate at {refused.start()}")
        raise InvalidIdError(f"{what}: control character U+{ord(refused[0]):04X} at {refused.start()}")
    size = len(value.encode())
    if size > MAX_BYTES:
        raise InvalidIdError(f"{what}: {size} bytes of UTF-8, at most {MAX_BYTES} allowed")
    return value


def encode_id(value: str) -> str:
    """The form of an id that is safe in Redis keys, object keys and file names.

    Distinct ids have distinct forms up to 120 bytes; beyond that they differ unless 128 bits of
    SHA-256 collide.

    Raises:
        InvalidIdError: It has a lone surrogate, which no store can keep.
    """
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdError(f"id: lone surrogate at {error.start}") from None
    encoded = "".join(chr(byte) if byte in _KEPT else f"~{byte:02x}" for byte in raw)
    if len(encoded) <= MAX_ENCODED:
        return encoded
    return f"{encoded[:60]}~{hashlib.sha256(raw).hexdigest()[:32]}"


def decode_id(encoded: str) -> str | None:
    """Inverse of `encode_id`; None for a form that is no encoding, or that may be shortened."""
    if _SHORTENED.fullmatch(encoded) or not _ENCODED.fullmatch(encoded):
        return None
    plain = _HEX.sub(lambda found: bytes([int(found[1], 16)]), encoded.encode())
    try:
        decoded = plain.decode()
    except UnicodeDecodeError:
        return None
    return decoded if encode_id(decoded) == encoded else None


def session_workflow_prefix(deployment: str = DEFAULT_NAME) -> str:
    """What ids of sessions' workflows begin with."""
    return f"{deployment}-session/"


def workflow_id(session_id: str, deployment: str = DEFAULT_NAME) -> str:
    """The workflow id of a session: one live execution a session.

    Args:
        session_id: Whose.
        deployment: The name of its deployment (`Settings.name`).
    """
    return session_workflow_prefix(deployment) + encode_id(validate_id(session_id, "session_id"))


def session_of(workflow: str, deployment: str = DEFAULT_NAME) -> str | None:
    """The session whose workflow has this id; None where the id holds a hash, or is another's."""
    encoded = workflow.removeprefix(session_workflow_prefix(deployment))
    return None if encoded == workflow else decode_id(encoded)


def is_session_workflow(workflow: str, deployment: str = DEFAULT_NAME) -> bool:
    """Whether a workflow of this id runs a session."""
    return workflow.startswith(session_workflow_prefix(deployment))


def child_workflow_prefix(session_id: str, deployment: str = DEFAULT_NAME) -> str | None:
    """What ids of sub-agents' workflows begin with; None where they hold a hash."""
    whole = workflow_id(session_id, deployment)
    return f"{whole}{encode_id('>')}" if session_of(whole, deployment) is not None else None


def short_workflow_prefix(kind: str, name: str, deployment: str = DEFAULT_NAME) -> str:
    """What ids of short workflows around one session, or thread, begin with."""
    return f"{deployment}-{kind}/{encode_id(name)}/"


Id = Annotated[str, BeforeValidator(validate_id)]
"""A validated id in a pydantic model."""


@dataclass(frozen=True, slots=True)
class CallKey:
    """Names one call of a tool: the same for every attempt, replay and reset.

    Attributes:
        session_id: Whose turn asks for it.
        answer_id: The message that asks.
        at: The call's number among those of the message.
    """

    session_id: str
    answer_id: str
    at: int

    @classmethod
    def parse(cls, text: str) -> "CallKey":
        """Inverse of ``str``.  A session's id may hold the character that parts a key; the others don't."""
        session_id, answer_id, at = text.rsplit("/", 2)
        return cls(session_id, answer_id, int(at))

    def __str__(self) -> str:
        return f"{self.session_id}/{self.answer_id}/{self.at}"

    @property
    def in_session(self) -> str:
        """Names the call within its session; names of the calls of one message sort as the calls do."""
        return f"{self.answer_id}/{self.at:06}"

    @property
    def result_id(self) -> str:
        """The id of the message that is the call's result."""
        return make_result_id(self.answer_id, self.at)


def make_result_id(answer_id: str, at: int) -> str:
    """The id of the result of a call: the id of the message that asks, and the call's number in it."""
    return f"{answer_id}.{at}"


def shorten_id(message_id: str) -> str:
    """A few letters that stand for a message's id where many are remembered."""
    return hashlib.sha256(message_id.encode()).hexdigest()[:12]
