"""References to a conversation in a model's input: signed, so that only a worker can issue one.

An item of the Responses API, ``{"type": "item_reference", "id": …}``, passes the runner of the OpenAI Agents
SDK untouched.  Three kinds of them are ours:

* A *reference* stands for the items of a thread up to a position.  A worker signs it for one workflow; the
  worker that calls the model puts the items in its place.
* A *row* stands for an item that this run has stored before, in a call of the session's own run.
* A *step note* stands last in the input of a session's own model call.  It says which of the other items
  are new, and where in the thread they and the answer are to stand.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.errors import InvalidReferenceError
from helix_temporal.frameworks import signatures
from helix_temporal.frameworks.signatures import Signer
from helix_temporal.models.base import JsonObject
from helix_temporal.models.stored_messages import Head

REFERENCE: Final = "helix-thread/1."
STEP: Final = "helix-step/1."
ROW: Final = "helix-row/1."
_LIMIT: Final = ":"
"""Stands between a reference and how many of the newest items are meant: neither part has one."""
_PURPOSE: Final = "openai-agents reference/1"


@dataclass(frozen=True, slots=True)
class ThreadReference:
    """The items of a thread up to a head, under the epoch of the open that knows it.

    Attributes:
        newest: Only so many of the newest of them; None for all.
    """

    thread_id: str
    epoch: int
    head: Head
    newest: int | None = None

    @property
    def start(self) -> int:
        """Position of the first item that is meant."""
        return 0 if self.newest is None else max(self.head.position - self.newest, 0)


class ThreadReferenceSigner:
    """Issues references, and reads those that a signer with one of these keys has issued.

    Args:
        keys: As of `Signer`.

    Raises:
        InvalidConfigError: A key has fewer than 16 characters.
    """

    def __init__(self, *keys: str) -> None:
        self._signer = Signer(keys, _PURPOSE)

    def sign(self, reference: ThreadReference, workflow_id: str) -> str:
        """The reference as text, for the model calls of one workflow."""
        head = reference.head
        values = [reference.thread_id, reference.epoch, head.position, head.last_id]
        return REFERENCE + self._signer.sign(values, workflow_id)

    def verify(self, text: str, workflow_id: str) -> ThreadReference:
        """The reference that was signed for this workflow.

        Raises:
            InvalidReferenceError: As `Signer.verify`; or it is none.
        """
        self._signer.verify(_signed_part(text), workflow_id)
        return read_unverified(text)


def read_unverified(text: str) -> ThreadReference:
    """What a reference says of itself: for the workflow, which has no key, and of its own ones alone.

    Raises:
        InvalidReferenceError: It is none.
    """
    values, limit = signatures.read_unverified(_signed_part(text)), text.partition(_LIMIT)[2]
    try:
        thread_id, epoch, position, last_id = values
        head = Head(position=position, last_id=last_id)
        if _LIMIT in text and not limit.isdecimal():
            raise ValueError(limit)
        return ThreadReference(str(thread_id), int(epoch), head, int(limit) if limit else None)
    except (ValueError, TypeError):
        raise InvalidReferenceError("a reference to a conversation cannot be read; it was cut off") from None


def _signed_part(text: str) -> str:
    if not text.startswith(REFERENCE):
        raise InvalidReferenceError(
            "an item that stands for a conversation is no reference; give the session"
        )
    return text.partition(_LIMIT)[0].removeprefix(REFERENCE)


def make_reference_item(text: str, newest: int | None = None) -> JsonObject:
    """The item that stands for the conversation, or for the newest items of it."""
    return {"type": "item_reference", "id": text if newest is None else f"{text}{_LIMIT}{newest}"}


def find_reference(item: object) -> str | None:
    """The text of an item that claims to be a reference; None for any other item."""
    return _find_ours(item, REFERENCE)


def find_step_note(item: object) -> str | None:
    """The text of an item that claims to be a step note; None for any other item."""
    return _find_ours(item, STEP)


def make_row_item(position: int) -> JsonObject:
    """The item that stands for the one at a position."""
    return {"type": "item_reference", "id": f"{ROW}{position}"}


def find_row(item: object) -> int | None:
    """The position of the item that this one stands for; None for any other item.

    Raises:
        InvalidReferenceError: It claims to be one, and names no position.
    """
    text = _find_ours(item, ROW)
    if text is None:
        return None
    number = text.removeprefix(ROW)
    if not number.isdecimal():
        raise InvalidReferenceError("an item that stands for a stored one names no position")
    return int(number)


def is_ours(item: object) -> bool:
    """Whether an item claims to be one of these kinds."""
    return any(_find_ours(item, each) is not None for each in (REFERENCE, STEP, ROW))


def _find_ours(item: object, prefix: str) -> str | None:
    if not isinstance(item, Mapping) or item.get("type") != "item_reference":
        return None
    name = item.get("id")
    return name if isinstance(name, str) and name.startswith(prefix) else None


@dataclass(frozen=True, slots=True)
class StepNote:
    """What a session's model call says of its step.

    Attributes:
        reference: A signed one of the session: it names thread and epoch.
        head: Where the step is to stand.
        pending: The items that the step stores before the answer: numbers of items of the call's input, or,
            where the input does not have one as it is to be stored, the item itself.
    """

    reference: str
    head: Head
    pending: tuple[int | JsonObject, ...]

    def as_item(self) -> JsonObject:
        """The item that carries the note."""
        fields = [self.reference, self.head.position, self.head.last_id, *self.pending]
        return {"type": "item_reference", "id": STEP + json.dumps(fields, separators=(",", ":"))}

    @staticmethod
    def parse(text: str) -> "StepNote":
        """Inverse of `as_item`, of the item's id.

        Raises:
            InvalidReferenceError: It is no note.
        """
        try:
            reference, position, last_id, *pending = json.loads(text.removeprefix(STEP))
            return StepNote(str(reference), Head(position=position, last_id=last_id), tuple(pending))
        except (ValueError, TypeError):
            raise InvalidReferenceError("a model call's note of its step cannot be read") from None

    def select_pending(self, items: Sequence[Any]) -> list[Any]:
        """The items to store, out of the call's input.

        Raises:
            InvalidReferenceError: The note names an item that is not there.
        """
        try:
            return [items[each] if isinstance(each, int) else each for each in self.pending]
        except IndexError:
            raise InvalidReferenceError("a model call's note names an item that it does not have") from None
