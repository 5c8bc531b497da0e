"""References to a conversation's history in a workflow: signed, so that only a worker can issue one.

A reference is a message that stands for the entries of a conversation up to one of them.  A worker signs it
for one workflow; the worker that calls the model puts the messages in its place.
"""

from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.frameworks.entry_tree import EntryPlace
from helix_temporal.frameworks.signatures import Signer

MARK: Final = "helix.reference"
"""The key of a message's metadata under which a reference is."""
TEXT: Final = "[Earlier messages are missing: this worker lacks HelixPydanticAIPlugin.]"
"""What a model is given instead where nobody expands a reference."""
_PURPOSE: Final = "pydantic-ai reference/1"


@dataclass(frozen=True, slots=True)
class EntryReference:
    """The entries of a conversation up to one of them, and where that lies."""

    entry_id: str
    place: EntryPlace


class EntryReferenceSigner:
    """Issues references, and reads those that a signer with one of these keys has issued.

    Args:
        keys: As of `Signer`.

    Raises:
        InvalidConfigError: A key has fewer than 16 characters.
    """

    def __init__(self, *keys: str) -> None:
        self._signer = Signer(keys, _PURPOSE)

    def sign(self, reference: EntryReference, workflow_id: str) -> str:
        """The reference as text, for the model calls of one workflow."""
        return self._signer.sign([reference.entry_id, *reference.place], workflow_id)

    def verify(self, text: str, workflow_id: str) -> EntryReference:
        """The reference that was signed for this workflow.

        Raises:
            InvalidReferenceError: As `Signer.verify`.
        """
        entry_id, session_id, at = self._signer.verify(text, workflow_id)
        return EntryReference(entry_id, EntryPlace(session_id, at))


def find_reference(message: Any) -> str | None:
    """The text of a message that claims to be a reference; None for any other message."""
    metadata = getattr(message, "metadata", None)
    found = metadata.get(MARK) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else None
