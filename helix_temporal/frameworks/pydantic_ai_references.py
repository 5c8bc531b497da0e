"""References to a conversation's history in a workflow: signed, so that only a worker can issue one.

A reference is a message that stands for the entries of a conversation up to one of them.  A worker signs it
for one workflow; the worker that calls the model puts the messages in its place.
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.errors import InvalidConfigError, InvalidReferenceError
from helix_temporal.frameworks.entry_tree import Place

MARK: Final = "helix.reference"
"""The key of a message's metadata under which a reference is."""
TEXT: Final = "[Earlier messages are missing: this worker lacks HelixPydanticAIPlugin.]"
"""What a model is given instead where nobody expands a reference."""
_MIN_KEY: Final = 16
_PURPOSE: Final = b"helix_temporal pydantic-ai reference/1"


@dataclass(frozen=True, slots=True)
class Reference:
    """The entries of a conversation up to one of them, and where that lies."""

    entry_id: str
    place: Place


class ReferenceSigner:
    """Issues references, and reads those that it, or a signer with the same key, has issued.

    Raises:
        InvalidConfigError: The key has fewer than 16 characters.
    """

    def __init__(self, key: str) -> None:
        if len(key) < _MIN_KEY:
            raise InvalidConfigError(f"reference_key has fewer than {_MIN_KEY} characters; set a longer one")
        self._key = hmac.digest(key.encode(), _PURPOSE, hashlib.sha256)

    def sign(self, reference: Reference, workflow_id: str) -> str:
        """The reference as text, for the model calls of one workflow."""
        payload = _encode(json.dumps([reference.entry_id, *reference.place]).encode())
        return f"{payload}.{self._compute_mac(payload, workflow_id)}"

    def verify(self, text: str, workflow_id: str) -> Reference:
        """The reference that was signed for this workflow.

        Raises:
            InvalidReferenceError: It was changed, cut off, made with another key or for another workflow.
        """
        payload, _, mac = text.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._compute_mac(payload, workflow_id).encode()):
            raise InvalidReferenceError(
                "a reference to a conversation is not one that a worker has signed for this workflow: it was "
                "changed or cut off, is another workflow's, or the workers' reference_key was changed.  Load "
                "the conversation in this workflow; all workers need the same key",
                workflow_id=workflow_id,
            )
        return _decode(payload)

    def _compute_mac(self, payload: str, workflow_id: str) -> str:
        signed = json.dumps([payload, workflow_id]).encode()
        return _encode(hmac.digest(self._key, signed, hashlib.sha256))


def find_reference(message: Any) -> str | None:
    """The text of a message that claims to be a reference; None for any other message."""
    metadata = getattr(message, "metadata", None)
    found = metadata.get(MARK) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(payload: str) -> Reference:
    try:
        entry_id, session_id, at = json.loads(base64.urlsafe_b64decode(payload + "==="))
    except (ValueError, TypeError, binascii.Error):
        raise InvalidReferenceError("a reference to a conversation cannot be read") from None
    return Reference(entry_id, Place(session_id, at))
