"""Transcripts of the Claude Agent SDK: ``ClaudeAgentOptions(session_store=HelixSessionStore(store))``."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import InvalidIdError, SessionNotFoundError
from helix_temporal.frameworks.given_stores import check_sessions
from helix_temporal.frameworks.item_log import ItemLog
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, StateChange
from helix_temporal.models.store_calls import SessionQuery, SessionSummary
from helix_temporal.stores.protocols.sessions import SessionStore

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

ENTRY_FORMAT: Final = "claude-agent-sdk/1"
_KIND: Final = "claude-agent-sdk"
_SUMMARY: Final = "summary"
_SUBPATH: Final = "subpath:"
"""With a subpath behind it, a key of the main transcript's state: lists are lost with a wiped Redis."""
_LISTED: Final = 200


class HelixSessionStore:
    """A `SessionStore` of the Claude Agent SDK over a session store of ours.

    A transcript is a session, and one of a sub-agent (a ``subpath``) is a session below it.  An entry's
    ``uuid`` is its name: a batch that is sent again, or that overlaps another one, stands once.

    Args:
        store: `Backends.sessions`, or another session store.
    """

    def __init__(self, store: SessionStore) -> None:
        check_sessions(store)
        self._store = store

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append a batch, all or none, and fold it into the transcript's summary in the same change.

        Raises:
            SessionNotFoundError: The transcript was deleted: a process that mirrors it still is too late.
        """
        items: list[Any] = list(entries)
        names = [_find_name(entry) for entry in items]
        is_main, is_new = key.get("subpath") is None, False

        def fold(state: SessionState) -> StateChange:
            nonlocal is_new
            is_new = _SUMMARY not in state.custom_state
            return _fold_summary(key, state, items)

        if not is_main:
            await repeat_unanswered(lambda: self._note_subpath(key))
        await self._open_log(key).append_items(items, names=names, fold=fold if is_main else None)
        if is_new:
            await self._note_earlier_subpaths(key)

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """All entries of a transcript; None for one that was never written, or was deleted."""
        if not await self._store.session_exists(_session_id(key)):
            return None
        entries: list[Any] = await self._open_log(key).read_items()
        return entries

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """Transcripts of a project, those of sub-agents left out."""
        return [
            {"session_id": str(each.metadata["session_id"]), "mtime": each.updated_at}
            async for each in self._list_transcripts(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """The summaries of a project's transcripts."""
        return [
            {
                "session_id": str(each.metadata["session_id"]),
                "mtime": each.updated_at,
                "data": _read_summary(each.custom_state or {}) or {},
            }
            async for each in self._list_transcripts(project_key, with_summary=True)
        ]

    async def delete(self, key: "SessionKey") -> None:
        """Delete a transcript, with those of its sub-agents; nothing if there is none."""
        if key.get("subpath") is None:
            for subpath in await self._list_subpaths(key):
                await self._store.delete_session(_session_id({**key, "subpath": subpath}))
        await self._store.delete_session(_session_id(key))

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """The subpaths of a transcript's sub-agents."""
        return await self._list_subpaths(key)

    async def _list_subpaths(self, key: "SessionKey | SessionListSubkeysKey") -> list[str]:
        """Those that lists show, and those that the main transcript knows of, which may be archived alone."""
        main = _main_id(key["project_key"], key["session_id"])
        query = SessionQuery(parent_session_id=main)
        found = [str(each.metadata["subpath"]) async for each in self._list(query)]
        state = await self._store.load_state(main)
        noted = () if state is None else _noted_subpaths(state)
        ids = {each: _session_id({**key, "subpath": each}) for each in noted if each not in found}
        return found + [each for each, name in ids.items() if await self._store.session_exists(name)]

    async def _note_subpath(self, key: "SessionKey") -> None:
        """Let the main transcript, if there is one, know of a sub-agent's."""
        main, subpath = _main_id(key["project_key"], key["session_id"]), key["subpath"]
        state = await self._store.load_state(main)
        if state is None or subpath in _noted_subpaths(state):
            return
        with contextlib.suppress(SessionNotFoundError):
            noted = MergeChanges(values={f"{_SUBPATH}{subpath}": True})
            await self._store.merge_custom_state(main, noted)

    async def _note_earlier_subpaths(self, key: "SessionKey") -> None:
        """Sub-agents may have written before the main transcript did."""
        for each in await self._list_subpaths(key):
            await repeat_unanswered(lambda each=each: self._note_subpath({**key, "subpath": each}))  # type: ignore[misc]

    def _open_log(self, key: "SessionKey") -> ItemLog:
        metadata: dict[str, Any] = {"project_key": key["project_key"], "session_id": key["session_id"]}
        parent = None
        if key.get("subpath") is not None:
            metadata["subpath"] = key["subpath"]
            parent = _main_id(key["project_key"], key["session_id"])
        create = CreateSession(agent_type=_KIND, metadata=metadata, parent_session_id=parent)
        return ItemLog(self._store, _session_id(key), ENTRY_FORMAT, create, revives=False)

    def _list_transcripts(
        self, project_key: str, *, with_summary: bool = False
    ) -> AsyncIterator[SessionSummary]:
        query = SessionQuery(
            agent_type=_KIND,
            parent_session_id=None,
            metadata={"project_key": project_key},
            include=("custom_state",) if with_summary else (),
        )
        return self._list(query)

    async def _list(self, query: SessionQuery) -> AsyncIterator[SessionSummary]:
        cursor: str | None = None
        while True:
            page = await self._store.list_sessions(
                query.model_copy(update={"limit": _LISTED, "cursor": cursor})
            )
            for each in page.sessions:
                yield each
            cursor = page.next_cursor
            if cursor is None:
                return


def _session_id(key: "SessionKey | SessionListSubkeysKey") -> str:
    main = _main_id(key["project_key"], key["session_id"])
    subpath = key.get("subpath")
    return f"{main}/{encode_id(str(subpath))}" if subpath is not None else main


def _main_id(project_key: str, session_id: str) -> str:
    # Short enough for a sub-agent's to fit behind it; what it stands for is in the metadata.
    return f"claude/{encode_id(json.dumps([project_key, session_id]))}"


def _noted_subpaths(state: SessionState) -> list[str]:
    return [each.removeprefix(_SUBPATH) for each in state.custom_state if each.startswith(_SUBPATH)]


def _find_name(entry: dict[str, Any]) -> str | None:
    try:
        return validate_id(entry.get("uuid"))
    except InvalidIdError:
        return None  # titles, tags and marks have none


def _fold_summary(key: "SessionKey", state: SessionState, entries: list[Any]) -> StateChange:
    from claude_agent_sdk import fold_session_summary  # noqa: PLC0415 (needed by whoever has the SDK alone)

    before: Any = None
    if _SUMMARY in state.custom_state:
        before = {
            "session_id": key["session_id"],
            "mtime": state.updated_at,
            "data": _read_summary(state.custom_state),
        }
    folded = fold_session_summary(before, key, entries)
    # Escaped: what a prompt or a title holds need not be text that every store can keep.
    return StateChange(merge=MergeChanges(values={_SUMMARY: json.dumps(folded["data"])}))


def _read_summary(custom: Mapping[str, Any]) -> Any:
    return json.loads(custom.get(_SUMMARY) or "null")
