"""What must be true of a session when everything has settled."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.frameworks.chaos.ledger import Turn


@dataclass(frozen=True, slots=True)
class Loss:
    """Redis lost what it alone had.

    Attributes:
        since: What was acknowledged later may be lost: the beginning of the last sweep that archived all,
            or of the copy that Redis went back to.
        at: When it was over; what is begun from then on must stand.  A turn that was begun before may have
            reached Redis before, however late its writer noted the answer.
    """

    since: int
    at: int

    def excuses(self, turn: Turn) -> bool:
        """Whether only Redis had it."""
        return (
            turn.acknowledged_at is not None
            and turn.begun_at <= self.at
            and self.since <= turn.acknowledged_at
        )


def find_violations(turns: Iterable[Turn], found: Sequence[str], losses: Sequence[Loss]) -> list[str]:
    """Nothing lost that was acknowledged and archived, nothing twice, nothing in halves, all in order."""
    violations = [f"{text} stands {times} times" for text, times in Counter(found).items() if times > 1]
    standing = set(found)
    for turn in turns:
        stands = [f"{turn.name} {part}" in standing for part in "qa"]
        if any(stands) != all(stands):
            violations.append(f"{turn.name} stands in half")
        excused = any(loss.excuses(turn) for loss in losses)
        if turn.acknowledged_at is not None and not all(stands) and not excused:
            violations.append(f"{turn.name} was acknowledged and is lost")
    return violations + _find_disorder(found)


def _find_disorder(found: Sequence[str]) -> list[str]:
    """Turns of a writer that stand before an earlier one, and turns that others stand in."""
    violations = []
    names = [name for name, _ in groupby(text.rpartition(" ")[0] for text in found)]
    if len(set(names)) < len(names):
        violations.append("a turn stands in pieces")
    for writer in sorted({name.rpartition("-")[0] for name in names}):
        numbers = [int(name.rpartition("-")[2]) for name in names if name.rpartition("-")[0] == writer]
        if numbers != sorted(numbers):
            violations.append(f"turns of {writer} are out of order")
    return violations
