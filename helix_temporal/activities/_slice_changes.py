"""Pure: which keys of a session's values changed where in its thread, within bounds."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from helix_temporal.models.base import canonical
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.slices import ChangedKeys
from helix_temporal.models.steps import EndTurnInput, RunStepInput

MAX_KEYS: Final = 256
MAX_BYTES: Final = 4 * 1024
"""Of all keys and places as JSON, about: the slice goes with every step."""
_PLACE_BYTES: Final = 12


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that are not the same in both."""
    return tuple(key for key in {*old, *new} if key not in old or key not in new or old[key] != new[key])


def after_step(
    before: SliceState,
    request: RunStepInput | EndTurnInput,
    position: int,
    changed: Iterable[str],
    values: Mapping[str, Any] | None,
) -> ChangedKeys | None:
    """What is known after a step at ``position``.

    ``changed`` are the keys that the application changed in its turn so far, ``values`` what it sends.
    """
    known = before.changes
    if request.run_id is None:
        return None
    if request.run_id != before.run:
        known = _at_new_turn(known, position, told=values is not None)
    if known is None:
        return None  # its turn began before any of this was kept
    staged = tuple(each.staged for each in request.inputs if each.staged)
    if staged:
        known = known.model_copy(update={"staged": known.staged + staged})
    # What the application has seen of tools' and others' changes is from before this turn.
    seen = () if values is None else differing(before.values, values)
    return _with(known, {**dict.fromkeys(seen, max(position - 1, 0)), **dict.fromkeys(changed, position)})


def after_save(
    before: SliceState, values: Mapping[str, Any], changed: Iterable[str], position: int
) -> ChangedKeys | None:
    """What is known after the values were saved where the thread ends, ``position``."""
    if before.changes is None:
        return None
    keys = {*differing(before.values, values), *changed}
    known = before.changes.model_copy(update={"staged": ()})
    return _with(known, dict.fromkeys(keys, max(position - 1, 0)))


def lacking(kept: SliceState, at: int, stop: int) -> tuple[str, ...]:
    """Keys that changed in turns which end at ``stop``, and not in a state that stands at ``at``."""
    changes = kept.changes
    if changes is None:
        return kept.changed
    newest = kept.changed if changes.turn < stop else ()
    return tuple(sorted({*newest, *(key for key, place in changes.at.items() if at <= place < stop)}))


def _at_new_turn(known: ChangedKeys | None, position: int, *, told: bool) -> ChangedKeys:
    if known is None:
        return ChangedKeys(since=position, turn=position)
    # What tools of the turn before changed comes with the values that the application was told, or never.
    lost = bool(known.staged) and not told
    return ChangedKeys(
        since=max(known.since, known.turn + 1) if lost else known.since, turn=position, at=known.at
    )


def _with(known: ChangedKeys, marks: Mapping[str, int]) -> ChangedKeys:
    if not marks:
        return known
    places, since = {**known.at, **marks}, known.since
    kept: dict[str, int] = {}
    size = 0
    for key, place in sorted(places.items(), key=lambda item: (-item[1], item[0])):
        size += len(canonical(key)) + _PLACE_BYTES
        if size > MAX_BYTES or len(kept) == MAX_KEYS:
            # Whatever is older goes with it.
            since = max(since, place + 1)
            break
        kept[key] = place
    return known.model_copy(update={"at": kept, "since": since})
