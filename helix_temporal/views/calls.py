"""Tool calls across sessions: which failed, and where they stand."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from helix_temporal.models.checkpoints import Run
from helix_temporal.models.ids import make_result_id
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.usage import SubAgentUsageEntry, ToolUsageEntry, UsageEntry, UsageQuery
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.conversation import SessionFacts, build_conversation, find_kept_attempt
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.live import read_call_errors
from helix_temporal.views.models import (
    FAILED_CALLS,
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    FoundCall,
    SessionOverview,
)
from helix_temporal.views.problems import UNREADABLE, describe_problem
from helix_temporal.views.queries import ListProblems, iterate_sessions
from helix_temporal.views.thread_parts import MAX_TURNS, read_part
from helix_temporal.views.turn_pages import hide_session, read_session_facts
from helix_temporal.views.turn_steps import count_steps
from helix_temporal.views.usage import duration_of, iterate_entries, status_of_entry
from helix_temporal.views.waits import list_outcomes

CallEntry = ToolUsageEntry | SubAgentUsageEntry
_CALL_KINDS: Final = ("tool", "subagent")
CallSource = Literal["usage", "thread"] | None
"""What tells of the calls of a session; None: it has none of those that are wanted."""

_UNDER_WAY: Final = 3_600_000
"""Milliseconds that a session may have stood unchanged while one of its calls was under way."""
_AT_ONCE: Final = 16
"""Sessions about which usage is asked side by side."""
_PARTS: Final = 40
"""Of one turn that are looked through for its calls: at 240 messages, 9,600."""


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls.

    Attributes:
        tool: Its name.
        failed: Their result is an error, or is none, or came too late; not those that somebody denied.
        since, until: Milliseconds since 1970, from inclusive, to exclusive.
    """

    tool: str | None = None
    failed: bool | None = None
    since: int | None = None
    until: int | None = None

    def matches_time(self, at: int | None) -> bool:
        """Whether a call at this time is wanted; one of which no time is known is."""
        if at is None:
            return True
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def matches_call(self, call: ConversationCall) -> bool:
        """Whether a call of a thread is wanted, by its tool and its result."""
        if self.tool not in {None, call.name}:
            return False
        return self.failed is None or self.failed == (call.status in FAILED_CALLS)

    def matches_entry(self, entry: CallEntry) -> bool:
        """Whether a call that usage tells of may be wanted, by its time, its tool and its result.

        One that was denied did not succeed, and did not fail either: the thread tells that.
        """
        if not self.matches_time(entry.timestamp) or self.tool not in {None, _name_of(entry)}:
            return False
        return not (self.failed and entry.success)

    def matches_success(self, entry: CallEntry) -> bool:
        """Whether a call that usage alone tells of is wanted."""
        return self.failed is None or self.failed == (status_of_entry(entry) == "failed")


@dataclass(slots=True)
class SearchProblems:
    """How far a search has come, and why not all calls could be found.

    Attributes:
        searched: How many sessions have been looked through.
        sessions: Those that cannot be read in full.
        first: What one of them tells.
        listed: Sessions that are not looked through, as lists leave them out.
    """

    searched: int = 0
    sessions: set[str] = field(default_factory=set)
    first: str = ""
    listed: ListProblems = field(default_factory=ListProblems)

    def add_session(self, session_id: str, problem: str) -> None:
        """Note that a session cannot be read in full."""
        self.sessions.add(session_id)
        self.first = self.first or f"session {session_id!r}: {problem}"

    def describe(self) -> str | None:
        """In a sentence; None where there are none."""
        if not self.sessions:
            return self.listed.describe()
        count = len(self.sessions)
        number = "1 session" if count == 1 else f"{count:,} sessions"
        said = f"not all of {number} can be read: calls may be missing.  {self.first}"
        return "; ".join(filter(None, (said, self.listed.describe())))


async def find_calls(
    viewed: ViewedSessions, wanted: SessionFilter, calls: CallFilter, problems: SearchProblems
) -> AsyncIterator[FoundCall]:
    """Calls in the sessions of a filter, sessions with the newest change first.

    A call whose message is in the thread no more, as its turn was aborted or taken back, is told as usage
    was recorded of it.  So is one of a thread that cannot be read; ``problems`` tells that, and of sessions
    that cannot be read at all.
    """
    async for names in _gather_names(
        iterate_sessions(viewed, _narrow_filter(wanted, calls), problems.listed)
    ):
        sources = await asyncio.gather(*(_choose_source(viewed, each, calls, problems) for each in names))
        for session_id, source in zip(names, sources, strict=True):
            try:
                state = None if source is None else await viewed.find_state(session_id)
                if state is not None:  # else no such call, or deleted since
                    async for found in _find_calls_by(viewed, state, calls, source, problems):
                        yield found
            except UNREADABLE as error:
                problems.add_session(session_id, describe_problem(error))
            problems.searched += 1


async def _gather_names(sessions: AsyncIterator[SessionOverview]) -> AsyncIterator[list[str]]:
    """Ids of sessions, a few at a time."""
    names: list[str] = []
    async for each in sessions:
        names.append(each.session_id)
        if len(names) == _AT_ONCE:
            yield names
            names = []
    if names:
        yield names


async def _choose_source(
    viewed: ViewedSessions, session_id: str, wanted: CallFilter, problems: SearchProblems
) -> CallSource:
    """Usage, where any was recorded of the session, and can be read."""
    if not await viewed.usage.exists(session_id):
        return "thread"
    try:
        async with aclosing(_list_entries(viewed, session_id, wanted)) as entries:
            return None if await anext(entries, None) is None else "usage"
    except UNREADABLE as error:
        problems.add_session(session_id, describe_problem(error))
        return "thread"


async def _list_entries(
    viewed: ViewedSessions, session_id: str, wanted: CallFilter
) -> AsyncGenerator[CallEntry]:
    """What usage tells of the calls that may be wanted, oldest first."""
    query = UsageQuery(
        session_id=session_id,
        kinds=_CALL_KINDS,
        since=wanted.since,
        until=wanted.until,
        limit=MAX_LIMIT,
    )
    page = await viewed.usage.query_usage(query)
    if (page.total or 0) > MAX_LIMIT:
        # Some stores read all entries of a session for each page.
        async for entry in iterate_entries(viewed.usage, session_id, _CALL_KINDS):
            if isinstance(entry, CallEntry) and wanted.matches_entry(entry):
                yield entry
        return
    for each in page.items:
        if isinstance(each, CallEntry) and wanted.matches_entry(each):
            yield each


async def find_session_calls(
    viewed: ViewedSessions, state: SessionState, wanted: CallFilter, problems: SearchProblems
) -> AsyncIterator[FoundCall]:
    """Calls of one session, as `find_calls` finds them."""
    source = await _choose_source(viewed, state.session_id, wanted, problems)
    async for found in _find_calls_by(viewed, state, wanted, source, problems):
        yield found


async def _find_calls_by(
    viewed: ViewedSessions,
    state: SessionState,
    wanted: CallFilter,
    source: CallSource,
    problems: SearchProblems,
) -> AsyncIterator[FoundCall]:
    """Calls of a session, without the ids of sub-agents' sessions that the viewer may not see."""
    if source is None:
        return
    search = _CallSearch(viewed, state, wanted, problems)
    async for found in search.find_calls(by_usage=source == "usage"):
        yield found.model_copy(update={"call": await hide_session(viewed, found.call)})


def _narrow_filter(wanted: SessionFilter, calls: CallFilter) -> SessionFilter:
    """Leave out sessions that were last changed before the calls that are wanted."""
    if calls.since is None:
        return wanted
    since = max(wanted.since or 0, calls.since - _UNDER_WAY)
    return wanted.model_copy(update={"since": since})


@dataclass(frozen=True, slots=True)
class _AskedCall:
    """A call of a thread, with the message that asks and its turn."""

    turn: ConversationTurn
    message: ConversationMessage
    call: ConversationCall


@dataclass(slots=True)
class _CallSearch:
    """Calls of one session.

    Attributes:
        problem: Why not all of the thread could be read; None where it could.
    """

    viewed: ViewedSessions
    state: SessionState
    wanted: CallFilter
    problems: SearchProblems
    problem: str | None = None

    async def find_calls(self, *, by_usage: bool) -> AsyncIterator[FoundCall]:
        """Those that usage tells of, or all that the thread has."""
        if not by_usage:
            async for found in self._scan_thread():
                yield found
            return
        async for group in self._group_entries():
            for found in await self._locate_calls(group):
                yield found

    def _note_problem(self, problem: str | None) -> None:
        if self.problem is None and problem is not None:
            self.problem = problem
            self.problems.add_session(self.state.session_id, problem)

    # -- by usage

    async def _group_entries(self) -> AsyncIterator[list[CallEntry]]:
        """Entries that may be wanted, those of one turn together."""
        group: list[CallEntry] = []
        async for entry in _list_entries(self.viewed, self.state.session_id, self.wanted):
            if group and (entry.run_id != group[0].run_id or len(group) >= MAX_LIMIT):
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    async def _locate_calls(self, entries: Sequence[CallEntry]) -> list[FoundCall]:
        """The calls that these entries of one turn are of."""
        run = await self._read_run(entries[0].run_id)
        named = {_result_id_of(entry): entry for entry in entries}
        asked = {} if run is None else await self._read_asked(run, set(named), entries)
        found: list[FoundCall] = []
        for result_id, entry in named.items():
            if result_id not in asked:
                if self.wanted.matches_success(entry):
                    found.append(self._tell_entry(entry, run))
            elif self.wanted.matches_call(asked[result_id].call):
                found.append(self._tell_call(asked[result_id], entry.timestamp))
        return found

    async def _read_run(self, run_id: str | None) -> Run | None:
        if self.viewed.sessions is None or run_id is None:
            return None
        return await self.viewed.sessions.get_run(self.state.session_id, run_id)

    async def _read_asked(
        self, run: Run, missing: set[str], entries: Sequence[UsageEntry]
    ) -> dict[str, _AskedCall]:
        """Those calls of a run that the thread has, by the ids of their results."""
        thread_id = self.state.messages_thread_id
        facts = await self._collect_facts([run], entries)
        after: int | None = run.start_head.position
        asked: dict[str, _AskedCall] = {}
        for number in range(_PARTS):
            part = await read_part(self.viewed.threads, thread_id, before=None, after=after, turns=1)
            self._note_problem(part.problem)
            if not part.part.messages or (number > 0 and part.part.begins_turn):
                break
            turns = build_conversation(part.part, facts, rows=None).turns
            asked |= {each: call for each, call in _index_calls(turns).items() if each in missing}
            facts = replace(facts, steps_before=(facts.steps_before or 0) + count_steps(part.part.messages))
            after = part.after
            if after is None or part.problem is not None or missing <= asked.keys():
                break
        return asked

    async def _collect_facts(self, runs: Sequence[Run], entries: Sequence[UsageEntry]) -> SessionFacts:
        sessions = self.viewed.sessions
        children = () if sessions is None else await sessions.list_sub_session_refs(self.state.session_id)
        is_live = any(run.run_id == self.state.current_run_id for run in runs)
        has_failed = any(not each.success for each in entries if isinstance(each, ToolUsageEntry))
        errors = await read_call_errors(self.viewed, self.state.session_id) if is_live and has_failed else {}
        return SessionFacts(
            runs=runs,
            entries=entries,
            children=children,
            outcomes=list_outcomes(self.state),
            call_errors=errors,
            live=is_live,
        )

    # -- by the thread

    async def _scan_thread(self) -> AsyncIterator[FoundCall]:
        """Newest turns first, as far as the thread can be read."""
        thread_id = self.state.messages_thread_id
        before: int | None = None
        while before is None or before > 0:
            found = await read_part(
                self.viewed.threads, thread_id, before=before, after=None, turns=MAX_TURNS
            )
            self._note_problem(found.problem)
            if not found.part.messages:
                return
            facts, problem = await read_session_facts(self.viewed, self.state, found.part)
            self._note_problem(problem)
            turns = build_conversation(found.part, facts, rows=None).turns
            for asked in reversed(_index_calls(turns).values()):
                at = _time_of(asked.turn)
                if self.wanted.matches_time(at) and self.wanted.matches_call(asked.call):
                    yield self._tell_call(asked, at)
            if found.before is None:
                return
            before = found.before

    # -- what is told

    def _tell_call(self, asked: _AskedCall, at: int | None) -> FoundCall:
        return FoundCall(
            session_id=self.state.session_id,
            user_id=self.state.user_id,
            agent=self.state.agent_type,
            turn=asked.turn.number,
            step=asked.message.step,
            message_position=asked.message.position,
            at=at,
            call=asked.call,
        )

    def _tell_entry(self, entry: CallEntry, run: Run | None) -> FoundCall:
        """A call of which the thread has no message: it stands where its turn began."""
        position = 0 if run is None else run.start_head.position
        own = entry if isinstance(entry, ToolUsageEntry) else None
        call = ConversationCall(
            call_id="" if own is None else own.tool_call_id,
            name=_name_of(entry),
            position=position,
            status=status_of_entry(entry),
            error=None if own is None else own.error or None,
            duration_ms=duration_of(entry),
            attempts=1 if own is None else own.attempts,
            sub_session_id=entry.sub_session_id if isinstance(entry, SubAgentUsageEntry) else None,
        )
        return FoundCall(
            session_id=self.state.session_id,
            user_id=self.state.user_id,
            agent=self.state.agent_type,
            turn=None if run is None else run.turn,
            step=entry.step_count or None,
            in_thread=False,
            problem=self.problem,
            message_position=position,
            at=entry.timestamp,
            call=call,
        )


def _result_id_of(entry: CallEntry) -> str:
    """The id of the message with the result of a call."""
    return entry.id.partition("/")[2]


def _name_of(entry: CallEntry) -> str:
    """The name under which a tool or a sub-agent was called."""
    if isinstance(entry, ToolUsageEntry):
        return entry.tool_name
    return entry.agent_type if entry.source is None else entry.source.name


def _index_calls(turns: Sequence[ConversationTurn]) -> dict[str, _AskedCall]:
    """Calls by the ids of their results, in the order of the thread."""
    return {
        make_result_id(message.message_id, call.at): _AskedCall(turn, message, call)
        for turn in turns
        for message in turn.messages
        for call in message.calls
    }


def _time_of(turn: ConversationTurn) -> int | None:
    """When the run of a turn began."""
    kept = find_kept_attempt(turn.attempts)
    return None if kept is None else kept.started_at
