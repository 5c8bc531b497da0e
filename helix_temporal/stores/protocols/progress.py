"""How long work tells how far it is."""

from typing import Final, Protocol


class Progress(Protocol):
    """Told of each object moved, so that long work can beat, and be resumed by its next attempt.

    Attributes:
        finished: Names of objects that an earlier attempt has written.
    """

    finished: frozenset[str]

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        """Object ``number`` of ``size`` bytes was moved; ``name`` is given if it need not be moved again."""
        ...


class NoProgress:
    """For callers that report to nobody."""

    finished: frozenset[str] = frozenset()

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        """Nobody listens."""


no_progress: Final = NoProgress()
