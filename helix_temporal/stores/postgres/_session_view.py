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
    some: dict[RecordKind, list[str]] = defaultdict(list)
    parts: list[_Part] = []
    for name in wanted.keys:
        some[name.kind].append(name.group if name.kind in _GROUPED else name.key)
    for kind, group in wanted.groups:
        if kind in _GROUPED:
            some[kind].append(group)
        else:
            parts.append(_Part("all", kind))
    parts += [_Part("newest", kind) for kind in wanted.newest]
    unknown = [part.kind.value for part in parts if part not in _branches()]
    if unknown:
        raise InvalidRequestError(f"newest of {unknown}: not kept in an order here")
    text = _text(tuple(_Part("some", kind) for kind in some), tuple(parts), wanted.thread)
    return text.replace("{prefix}", prefix), [session_id, *some.values()]


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
