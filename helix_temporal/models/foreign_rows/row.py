"""What a row of another system says: what it asks for, what it answers, and who speaks."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from helix_temporal.models.foreign_rows.content import Said
from helix_temporal.models.messages import Role
from helix_temporal.models.stored_messages import Kind


class NamedCall(NamedTuple):
    """What a call and its result have in common; not every provider says both."""

    id: str | None
    name: str | None = None


def say_nothing() -> Said:
    """What is said where nobody says anything."""
    return None


class ForeignRow(NamedTuple):
    """A row as its reader understands it.

    Attributes:
        calls: Tools that it asks for, whose results come in other rows.
        results: Calls that it answers.
        role: Who speaks in it; None where it is neither a user, nor a prompt, nor a model.
        read_said: Gives what is said, without calls and results, or None.  It is called where that is wanted:
            a part that cannot be read must not hide the calls beside it.
        joins: Whether it is only a part of what the row after it, or the row before it, says.
        paired: Only a call and a result that meet in one append bind each other.  An archive that is
            imported as a whole is so: a call in it that nobody answered stays without effect.
    """

    calls: Sequence[NamedCall] = ()
    results: Sequence[NamedCall] = ()
    role: Role | None = None
    read_said: Callable[[], Said] = say_nothing
    joins: Literal["next", "previous"] | None = None
    paired: bool = False

    @property
    def kind(self) -> str:
        """What the row is to a store by itself, whatever stands around it.

        So a row has one kind however many of its neighbours come in the same append, and a repeat of a
        part of an append finds the rows as they stand.
        """
        if self.paired:
            return Kind.OTHER
        if self.results or self.joins == "previous":
            return Kind.RESULT
        return Kind.CALLS if self.calls or self.joins == "next" else Kind.OTHER


ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
}
"""Who speaks, by the words of providers and frameworks; others, such as ``tool``, say nothing themselves."""
