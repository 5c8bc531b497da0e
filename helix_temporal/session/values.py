"""The application's values, compared with what the stores have, key by key.  Pure.

Tools and other programs change the state too: what the application did not change itself is theirs, and
is never written back over what they have written since.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.errors import InvalidMessageError
from helix_temporal.models.base import copy_json, is_same_json
from helix_temporal.models.sessions import Carried


@dataclass(slots=True)
class StoredValues:
    """What the session knows to be stored.

    Attributes:
        saved: The values as they were last saved, or told by the store.
        stale: The thread's slice has others, so that they go with the next step.
    """

    saved: dict[str, Any] = field(default_factory=dict)
    stale: bool = False

    @staticmethod
    def of(values: Mapping[str, Any] | None, *, stale: bool = False) -> "StoredValues":
        """A copy: the application may change what lies within its values."""
        return StoredValues(deepcopy(dict(values or {})), stale)

    def list_changed_keys(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Keys that the application changed or removed."""
        keys = {*self.saved, *values}
        return tuple(sorted(each for each in keys if not _is_same_value(each, self.saved, values)))

    def find_unsaved(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values if some of them are not saved yet; else None."""
        return dict(values) if self.stale or self.list_changed_keys(values) else None


@dataclass(slots=True)
class Values:
    """The application's values, and what is known to be stored of them."""

    now: dict[str, Any] = field(default_factory=dict)
    stored: StoredValues = field(default_factory=StoredValues)

    @staticmethod
    def of(carried: Carried | None) -> "Values":
        """The values at the start of a run."""
        if carried is None:
            return Values()
        stored = StoredValues.of(carried.saved_values, stale=carried.stale_values)
        return Values(dict(carried.values or {}), stored)

    def find_unsaved(self) -> dict[str, Any] | None:
        """The values if some of them are not saved yet; else None."""
        return self.stored.find_unsaved(self.build_storable())

    def list_changed_keys(self) -> tuple[str, ...]:
        """Keys that the application changed or removed."""
        return self.stored.list_changed_keys(self.build_storable())

    def build_storable(self) -> dict[str, Any]:
        """The values as JSON has them, tuples as lists; one that is no JSON is as it was last stored."""
        good, refused = self._split_values()
        return {**{key: value for key, value in self.stored.saved.items() if key in refused}, **good}

    def list_refused(self) -> dict[str, str]:
        """Keys of values that are no JSON, and why."""
        return {repr(key)[:80]: why for key, why in self._split_values()[1].items()}

    def apply_promoted(self, before: StoredValues, promoted: Mapping[str, Any]) -> None:
        """Take over the state into which tools' changes were put; the application's since ``before`` stay."""
        good, refused = self._split_values()
        mine = {**good, **{key: self.now[key] for key in refused}}
        self.now = merge_stored_values(mine, before.saved, promoted)
        self.stored = StoredValues.of(promoted, stale=True)

    def _split_values(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The values that are JSON, as JSON has them; of the others why they are none."""
        good: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for key, value in self.now.items():
            try:
                good |= copy_json({key: value})
            except InvalidMessageError as error:
                refused[key] = str(error)
        return good, refused


def merge_stored_values(
    values: Mapping[str, Any], before: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """``stored`` as the application's values, with what it changed since they were ``before``."""
    mine = {each for each in {*before, *values} if not _is_same_value(each, before, values)}
    kept = {key: value for key, value in values.items() if key in mine}
    return {**{key: deepcopy(value) for key, value in stored.items() if key not in mine}, **kept}


def _is_same_value(key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if key not in one or key not in other:
        return (key in one) == (key in other)
    return is_same_json(one[key], other[key])
