"""Transcripts of the Claude Agent SDK: ``ClaudeAgentOptions(session_store=HelixSessionStore(store))``."""

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from helix_temporal.errors import InvalidIdError
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
_LISTED: Final = 200


class HelixSessionStore:
    """A `SessionStore` of the Claude Agent SDK over a session store of ours.

    A transcript is a session, and one of a sub-agent (a ``subpath``) is a session below it.  An entry's
    ``uuid`` is its name: a batch that is sent again, or that overlaps another one, stands once.

    Args:
        store: `Backends.sessions`, or another session store.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append a batch, all or none, and fold it into the transcript's summary in the same change.

        Raises:
            SessionNotFoundError: The transcript was deleted: a process that mirrors it still is too late.
        """
        items: list[Any] = list(entries)
        names = [_find_name(entry) for entry in items]
        is_main = "subpath" not in key

        def fold(state: SessionState) -> StateChange:
            return _fold_summary(key, state, items)

        await self._open_log(key).append_items(items, names=names, fold=fold if is_main else None)

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
                "data": dict((each.custom_state or {}).get(_SUMMARY) or {}),  # type: ignore[arg-type]
            }
            async for each in self._list_transcripts(project_key, with_summary=True)
        ]

    async def delete(self, key: "SessionKey") -> None:
        """Delete a transcript, with those of its sub-agents; nothing if there is none."""
        session_id = _session_id(key)
        if "subpath" not in key:
            for each in [each async for each in self._list(SessionQuery(parent_session_id=session_id))]:
                await self._store.delete_session(each.session_id)
        await self._store.delete_session(session_id)

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """The subpaths of a transcript's sub-agents."""
        query = SessionQuery(parent_session_id=_session_id(key))
        return [str(each.metadata["subpath"]) async for each in self._list(query)]

    def _open_log(self, key: "SessionKey") -> ItemLog:
        metadata: dict[str, Any] = {"project_key": key["project_key"], "session_id": key["session_id"]}
        parent = None
        if "subpath" in key:
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
            "data": state.custom_state[_SUMMARY],
        }
    folded = fold_session_summary(before, key, entries)
    return StateChange(merge=MergeChanges(values={_SUMMARY: folded["data"]}))
