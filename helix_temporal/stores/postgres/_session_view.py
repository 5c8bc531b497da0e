"""Puts the statement of a view together: only the tables that the view wants are looked at."""

import re
from collections import defaultdict
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from helix_temporal.errors import InvalidRequestError
from helix_temporal.stores.postgres._queries import statement
from helix_temporal.stores.protocols.session_records import RecordKind, Wanted

_GROUPED: Final = (RecordKind.STEP, RecordKind.STAGED)
"""Kinds of which a table is read by group, also where a key is wanted."""

_BRANCH: Final = "\nUNION ALL "
_KIND: Final = re.compile(r"SELECT '([a-z_]+)'")
_ASKED: Final = re.compile(r"'[a-z_]+' = ANY \(\$1[12]::text\[\]\) AND ")
_ARGUMENT: Final = re.compile(r"\$\d+::text\[\]")

How = Literal["some", "all", "newest"]


class _Part(NamedTuple):
    how: How
    kind: RecordKind


def view_statement(session_id: str, wanted: Wanted, *, prefix: str) -> tuple[str, list[Any]]:
    """The statement that reads a view, and its arguments.

    Raises:
        InvalidRequestError: The newest of a kind is wanted that has no order.
    """
    some = _some(wanted)
    parts = [_Part("all", kind) for kind, _ in wanted.groups if kind not in _GROUPED]
    parts += [_Part("newest", kind) for kind in wanted.newest]
    unknown = [part.kind.value for part in parts if part not in _branches()]
    if unknown:
        raise InvalidRequestError(f"newest of {unknown}: not kept in an order here")
    text = _text(tuple(_Part("some", kind) for kind in some), tuple(parts), wanted.thread)
    return text.replace("{prefix}", prefix), [session_id, *some.values()]


def none_of(unless: Wanted, used: int) -> tuple[tuple[str, ...], list[Any]]:
    """What holds where nothing of ``unless`` is there: conditions, their arguments from ``$used + 1`` on.

    Raises:
        InvalidRequestError: A key of a kind with groups is among it, or all of a kind without.
    """
    keyed = [name.kind for name in unless.keys if name.kind in _GROUPED]
    whole = [kind for kind, _ in unless.groups if kind not in _GROUPED]
    if keyed or whole:
        raise InvalidRequestError(f"unless: keys of {keyed}, all of {whole}: not looked for in a commit")
    some = _some(unless)
    return _conditions(tuple(some), used), list(some.values())


def _some(wanted: Wanted) -> dict[RecordKind, list[str]]:
    some: dict[RecordKind, list[str]] = defaultdict(list)
    for name in wanted.keys:
        some[name.kind].append(name.group if name.kind in _GROUPED else name.key)
    for kind, group in wanted.groups:
        if kind in _GROUPED:
            some[kind].append(group)
    return some


@lru_cache(512)
def _conditions(kinds: tuple[RecordKind, ...], used: int) -> tuple[str, ...]:
    branches = (_branches()[_Part("some", kind)] for kind in kinds)
    asked = (_ARGUMENT.sub(f"${used + n}::text[]", branch) for n, branch in enumerate(branches, 1))
    return tuple(f"NOT EXISTS ({each})" for each in asked)


@lru_cache(512)
def _text(some: tuple[_Part, ...], others: tuple[_Part, ...], thread: bool) -> str:
    branches = _branches()
    texts = [_state()]
    for number, part in enumerate(some, 2):
        texts.append(_ARGUMENT.sub(f"${number}::text[]", branches[part]))
    texts += [branches[part] for part in dict.fromkeys(others)]
    text = _BRANCH.join(texts)
    if not thread:
        return text
    whole = statement("session_view")
    return statement("session_thread_view").replace(whole, text)


@lru_cache(1)
def _branches() -> dict[_Part, str]:
    found: dict[_Part, str] = {}
    for branch in statement("session_view").split(_BRANCH)[1:]:
        named = _KIND.search(branch)
        assert named is not None, branch
        how: How = "all" if "($11::" in branch else "newest" if "($12::" in branch else "some"
        found[_Part(how, RecordKind(named[1]))] = _ASKED.sub("", branch)
    return found


def _state() -> str:
    return statement("session_view").split(_BRANCH)[0]
