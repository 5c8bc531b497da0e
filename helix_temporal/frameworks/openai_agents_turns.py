"""What a session in a workflow knows of its thread: what stands there, and what the runner has added since.

The model activity stores a model's answer before the runner adds it to the session.  So each item that the
runner adds is either a stored answer, which is confirmed by that, or new, and pending until it is stored.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.models.base import JsonObject

_IGNORED: Final = frozenset({"id", "status", "_agents_tool_description", "_agents_tool_title"})
"""Runners may add, drop or rename these between a model's answer and the session."""
_EARLIER: Final = -1
"""Position of what an earlier run has left open: it is never cut, as other items may follow it."""
COMPLETED: Final = "response.completed"


@dataclass(slots=True)
class RunItem:
    """An item of this run that stands in the thread.

    Attributes:
        confirmed: The runner has added it, or had done so before it was stored.
    """

    position: int
    item: JsonObject
    key: str
    confirmed: bool


class RunItems:
    """The items of one run, by what has become of them."""

    def __init__(self) -> None:
        self.pending: list[JsonObject] = []
        self._stored: list[RunItem] = []

    def add(self, items: Iterable[JsonObject]) -> None:
        """The runner adds items to the session: stored answers are confirmed, all others wait."""
        for item in items:
            found = self._find_unconfirmed(make_key(item))
            if found is None:
                self.pending.append(item)
            else:
                found.confirmed = True

    def take_stored(self, position: int, sent: Sequence[JsonObject], answer: Sequence[JsonObject]) -> None:
        """A step stands in the thread from a position on."""
        self.drop_pending(sent)
        rows = [(item, True) for item in sent] + [(item, False) for item in answer]
        for at, (item, confirmed) in enumerate(rows, position):
            self._stored.append(RunItem(at, item, make_key(item), confirmed))

    def drop_pending(self, sent: Sequence[JsonObject]) -> None:
        """These items wait no longer; others that the runner has added meanwhile do."""
        gone = {id(item) for item in sent}
        self.pending = [item for item in self.pending if id(item) not in gone]

    def find_position(self, item: object) -> int | None:
        """Where an item of this run stands just as it is; None if it does not."""
        found = (each.position for each in self._stored if each.item == item)
        return next((position for position in found if position != _EARLIER), None)

    def find_cut(self) -> int | None:
        """Position of the first answer of this run that the runner did not keep; None if it kept all."""
        open_ones = (each.position for each in self._stored if not each.confirmed)
        return next((position for position in open_ones if position != _EARLIER), None)

    def list_kept_from(self, position: int) -> list[JsonObject]:
        """What is to stand in the thread from a position on, once it is cut there."""
        kept = [each.item for each in self._stored if each.confirmed and each.position >= position]
        return [*kept, *self.pending]

    def list_unconfirmed(self) -> list[str]:
        """Keys of stored answers that the runner may still add: a turn waits for an approval."""
        return [each.key for each in self._stored if not each.confirmed]

    def forget_confirmed(self) -> None:
        """The run has ended and all of it is stored; what a waiting turn left open stays known."""
        left = self.list_unconfirmed()
        self._stored = []
        self.expect(left)

    def expect(self, keys: Iterable[str]) -> None:
        """Stored answers that an earlier run of the workflow left open."""
        self._stored += [RunItem(_EARLIER, {}, key, confirmed=False) for key in keys]

    def _find_unconfirmed(self, key: str) -> RunItem | None:
        return next((each for each in self._stored if not each.confirmed and each.key == key), None)


def make_key(item: Mapping[str, Any]) -> str:
    """The same for an item of a model's answer and for what the runner makes of it."""
    if item.get("call_id"):
        return f"{item.get('type')}/{item['call_id']}"
    return json.dumps(_without_ignored(item), sort_keys=True, default=str)


def _without_ignored(value: Any, *, inside: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _without_ignored(each, inside=True)
            for name, each in value.items()
            if each is not None and (inside or name not in _IGNORED)
        }
    return [_without_ignored(each, inside=True) for each in value] if isinstance(value, list) else value


def find_answer_items(result: Any) -> list[Any] | None:
    """The output of a model activity, of a response or of a stream's events; None without an answer."""
    if not isinstance(result, list):
        return list(read_field(result, "output") or ())
    for event in reversed(result):
        if read_field(event, "type") == COMPLETED:
            return list(read_field(read_field(event, "response"), "output") or ())
    return None


def read_field(value: Any, name: str) -> Any:
    """A field of a model, or of the dict that stands for one; None where it is not set."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def as_plain(value: Any) -> Any:
    """Plain JSON values; for some lists pydantic leaves an iterator, which can be read once."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_plain(each) for name, each in value.items()}
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", exclude_unset=True)
    return [as_plain(each) for each in value]
