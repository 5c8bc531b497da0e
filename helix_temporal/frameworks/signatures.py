"""What a worker signs for one workflow, so that nothing else can be taken for it."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any, Final

from helix_temporal.errors import InvalidConfigError, InvalidReferenceError

MIN_KEY: Final = 16


class Signer:
    """Signs a few values of JSON as one text without spaces or colons, and reads what it has signed.

    Args:
        key: The secret that all workers share: ``HELIX_REFERENCE_KEY``.
        purpose: What is signed, with its version: a text of another purpose is not taken.

    Raises:
        InvalidConfigError: The key has fewer than 16 characters.
    """

    def __init__(self, key: str, purpose: str) -> None:
        if len(key) < MIN_KEY:
            raise InvalidConfigError(f"reference_key has fewer than {MIN_KEY} characters; set a longer one")
        self._key = hmac.digest(key.encode(), f"helix_temporal {purpose}".encode(), hashlib.sha256)

    def sign(self, values: Sequence[Any], workflow_id: str) -> str:
        """The values as text, for one workflow."""
        payload = _encode(json.dumps(values, separators=(",", ":")).encode())
        return f"{payload}.{self._compute_mac(payload, workflow_id)}"

    def verify(self, text: str, workflow_id: str) -> list[Any]:
        """The values that were signed for this workflow.

        Raises:
            InvalidReferenceError: The text was changed, cut off, made with another key, for another workflow
                or for another purpose.
        """
        payload, _, mac = text.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._compute_mac(payload, workflow_id).encode()):
            raise InvalidReferenceError(
                "a reference to a conversation is not one that a worker has signed for this workflow: it was "
                "changed or cut off, is another workflow's, or the workers' reference_key was changed.  Load "
                "the conversation in this workflow, and give a run no items that hold a reference; all "
                "workers need the same key",
                workflow_id=workflow_id,
            )
        return read_unverified(text)

    def _compute_mac(self, payload: str, workflow_id: str) -> str:
        signed = json.dumps([payload, workflow_id]).encode()
        return _encode(hmac.digest(self._key, signed, hashlib.sha256))


def read_unverified(text: str) -> list[Any]:
    """What a signed text says, for whoever has no key and reads its own alone.

    Raises:
        InvalidReferenceError: It is none.
    """
    try:
        values = json.loads(base64.urlsafe_b64decode(text.rpartition(".")[0] + "==="))
    except (ValueError, TypeError, binascii.Error):
        values = None
    if not isinstance(values, list):
        raise InvalidReferenceError("a reference to a conversation cannot be read; it was cut off")
    return values


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
