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
        keys: Secrets that all workers share.  The first one signs, and what any of them has signed is taken.
        purpose: What is signed, with its version: a text of another purpose is not taken.

    Raises:
        InvalidConfigError: A key has fewer than 16 characters.
    """

    def __init__(self, keys: Sequence[str], purpose: str) -> None:
        if any(len(key) < MIN_KEY for key in keys):
            raise InvalidConfigError(f"reference_key has fewer than {MIN_KEY} characters; set a longer one")
        self._keys = [
            hmac.digest(key.encode(), f"helix_temporal {purpose}".encode(), hashlib.sha256) for key in keys
        ]

    def sign(self, values: Sequence[Any], workflow_id: str) -> str:
        """The values as text, for one workflow."""
        payload = _encode(json.dumps(values, separators=(",", ":")).encode())
        return f"{payload}.{_compute_mac(self._keys[0], payload, workflow_id)}"

    def verify(self, text: str, workflow_id: str) -> list[Any]:
        """The values that were signed for this workflow.

        Raises:
            InvalidReferenceError: The text was changed, cut off, made with another key, for another workflow
                or for another purpose.
        """
        payload, _, mac = text.rpartition(".")
        macs = [_compute_mac(key, payload, workflow_id) for key in self._keys]
        if not any(hmac.compare_digest(mac.encode(), each.encode()) for each in macs):
            raise InvalidReferenceError(
                "a reference to a conversation is not one that a worker has signed for this workflow: it was "
                "changed or cut off, is another workflow's, or the workers' reference_key was changed.  Load "
                "the conversation in this workflow, and give a run no items that hold a reference; all "
                "workers need the same key",
                workflow_id=workflow_id,
            )
        return read_unverified(text)


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


def _compute_mac(key: bytes, payload: str, workflow_id: str) -> str:
    signed = json.dumps([payload, workflow_id]).encode()
    return _encode(hmac.digest(key, signed, hashlib.sha256))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
