"""Pages of a conversation: its messages with what the session and the usage store know of them."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from helix_temporal.errors import InvalidRequestError, NotFoundError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState, SubSessionRef
from helix_temporal.models.stored_messages import Kind
from helix_temporal.models.usage import ToolUsageEntry, UsageEntry, UsageQuery
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.children import find_ended_children
from helix_temporal.views.conversation import (
    Conversation,
    MessagesPart,
    SessionFacts,
    attempt_of,
    build_conversation,
    build_message,
    list_entry_ids,
    number_turn,
)
from helix_temporal.views.live import read_call_errors
from helix_temporal.views.lost_questions import add_questions
from helix_temporal.views.models import (
    ConversationCall,
    ConversationMessage,
    ConversationPage,
    ConversationTurn,
    TurnAttempt,
    WholeMessage,
)
from helix_temporal.views.problems import PARTIAL_READ_ERRORS, as_store_error, describe_problem
from helix_temporal.views.session_facts import read_waits
from helix_temporal.views.storage import find_thread
from helix_temporal.views.thread_parts import FoundPart, PartReader, read_one, read_part
from helix_temporal.views.turn_positions import find_lost_run, find_turn
from helix_temporal.views.turn_runs import read_runs
from helix_temporal.views.turn_steps import find_begin, find_steps_before
from helix_temporal.views.usage import RecordedUsage
from helix_temporal.views.waits import list_outcomes, list_waits

_CLOCKS: Final = 120_000
"""Milliseconds by which the clocks of workers and stores may differ."""
_ENTRIES: Final = 200
_MOST_ENTRIES: Final = 2_000
_COUNTED: Final = 2_000
"""Messages before a part that are read for the number of its first step."""
FEW_STEPS: Final = 500
"""Of a session whose entries of usage are read by time: there are a few for each step."""
_MOST_ABORTED: Final = 5
"""Runs on a page whose entries are read for themselves."""
_MAY_CALL: Final = frozenset({Kind.CALLS, Kind.OTHER})


async def read_turns(
    viewed: ViewedSessions, state: SessionState, *, before: int | None, after: int | None, turns: int
) -> ConversationPage:
    """A page of turns, with long texts cut.

    Raises:
        InvalidRequestError: See `thread_parts.read_part`.
    """
    thread_id = state.messages_thread_id
    found = await read_part(viewed.threads, thread_id, before=before, after=after, turns=turns)
    facts, problem = await read_session_facts(viewed, state, found.part)
    made = build_conversation(found.part, facts)
    made = await add_questions(viewed, state.session_id, made, facts.runs)
    shown = await hide_sessions(viewed, made.turns)
    return page_of(state, found, shown, made.lost, found.problem or problem)


async def find_message_id(viewed: ViewedSessions, state: SessionState, position: int) -> str | None:
    """The id of the message at a position; None where none is there, or it can't be read now."""
    part = await read_one(viewed.threads, state.messages_thread_id, position)
    return None if part is None or not part.messages else part.messages[0].id


def page_of(
    state: SessionState,
    found: FoundPart,
    turns: Sequence[ConversationTurn],
    lost: Sequence[TurnAttempt],
    problem: str | None,
) -> ConversationPage:
    """Turns as a page."""
    return ConversationPage(
        session_id=state.session_id,
        thread_id=state.messages_thread_id,
        turns=tuple(turns),
        before=found.before,
        after=found.after,
        committed=found.part.committed if found.end_known else None,
        head=found.part.head if found.end_known else None,
        lost=tuple(lost),
        problem=problem,
    )


async def read_turn(
    viewed: ViewedSessions,
    state: SessionState,
    number: int,
    *,
    before: int | None = None,
    after: int | None = None,
) -> ConversationPage:
    """One turn with whole texts, from its begin, or the part of it before or from a position.

    Its ``before`` and ``after`` lead to the other parts of this turn, and not beyond.

    Raises:
        NotFoundError: See `turn_positions.find_turn`.
        InvalidRequestError: See there, and `thread_parts.read_part`; or the position is not in the turn.
    """
    start = await find_turn(viewed, state, number)
    thread_id = state.messages_thread_id
    place = start if before is None and after is None else after
    found = await read_part(viewed.threads, thread_id, before=before, after=place, turns=1)
    facts, problem = await read_session_facts(viewed, state, found.part)
    made = build_conversation(found.part, facts, most=None)
    made = await add_questions(viewed, state.session_id, made, facts.runs)
    is_part = _is_part_of(made.turns, start)
    if not is_part and found.problem is None:
        raise InvalidRequestError(
            f"turn {number} of session {state.session_id!r} has no part "
            f"{f'before {before}' if after is None else f'from {after} on'}: it begins at {start}"
        )
    turns = [
        each if each.number is not None else each.model_copy(update={"number": number})
        for each in (made.turns if is_part else ())
    ]
    shown = await hide_sessions(viewed, turns)
    page = page_of(state, found, shown, made.lost, found.problem or problem)
    return page.model_copy(
        update={
            "before": page.before if turns and not turns[0].part_of_turn.begins else None,
            "after": page.after if turns and not turns[-1].part_of_turn.ends else None,
        }
    )


def _is_part_of(turns: Sequence[ConversationTurn], start: int) -> bool:
    """Whether what was read is of the turn that begins at a position."""
    if not turns:
        return False
    first = turns[0]
    if first.part_of_turn.begins or first.start <= start:
        return first.start == start
    # Without runs nothing tells whose part it is.
    return not first.attempts or any(each.start == start for each in first.attempts)


async def iterate_turn(
    viewed: ViewedSessions, state: SessionState, number: int
) -> AsyncIterator[ConversationPage]:
    """All parts of one turn with whole texts, in order; raises as `read_turn`."""
    page = await read_turn(viewed, state, number)
    yield page
    while page.after is not None:
        page = await read_turn(viewed, state, number, after=page.after)
        yield page


async def find_lost_attempt(viewed: ViewedSessions, state: SessionState, number: int) -> TurnAttempt | None:
    """The attempt of a turn that is not in the thread, with its model calls; None for any other number."""
    run = await find_lost_run(viewed, state, number)
    if run is None:
        return None
    entries = await viewed.usage.get_entries(state.session_id, run_id=run.run_id, limit=_ENTRIES)
    attempt = attempt_of(run, RecordedUsage.of(entries), kept=run.status.live)
    told = await add_questions(viewed, state.session_id, Conversation((), (attempt,)), [run])
    return told.lost[0]


async def find_turn_number(viewed: ViewedSessions, state: SessionState, position: int) -> int | None:
    """The number of the turn in which a message stands; None where it is not known."""
    thread_id = state.messages_thread_id
    try:
        part = await read_one(viewed.threads, thread_id, position)
        if part is None:
            return None
        runs = () if viewed.sessions is None else await read_runs(viewed.sessions, state.session_id, part)
    except PARTIAL_READ_ERRORS:
        return None
    return number_turn(part, runs)


async def read_message(viewed: ViewedSessions, state: SessionState, position: int) -> WholeMessage:
    """A message with all its text, its calls with their results.

    Raises:
        NotFoundError: There is none at this position.
        StoreUnavailableError, ArchiveError, StoreCorruptError: It cannot be read.
    """
    thread_id = state.messages_thread_id
    found = await read_part(viewed.threads, thread_id, before=None, after=position, turns=1)
    part = found.part
    if not part.messages or part.first != position:
        if found.error is not None and not (found.end_known and position >= part.head):
            raise as_store_error(found.error, f"message {position} of session {state.session_id!r}")
        raise NotFoundError(
            f"session {state.session_id!r} has no message at {position}: it ends at {part.head}"
        )
    facts, _ = await read_session_facts(viewed, state, part)
    return WholeMessage(
        session_id=state.session_id,
        thread_id=thread_id,
        turn=number_turn(part, facts.runs),
        message=await _hide_in_message(viewed, build_message(part, position, facts)),
    )


async def read_session_facts(
    viewed: ViewedSessions, state: SessionState, part: MessagesPart
) -> tuple[SessionFacts, str | None]:
    """What is known beside the messages of a part, and why not all of it could be read."""
    runs: tuple[Run, ...] = ()
    problem: str | None = None
    entries: Sequence[UsageEntry] = ()
    try:
        if viewed.sessions is not None:
            runs = await read_runs(viewed.sessions, state.session_id, part)
        entries = await find_entries(viewed, state, part, runs)
    except PARTIAL_READ_ERRORS as error:
        problem = describe_problem(error)
    at_end = part.stop >= part.head
    live = next((run for run in runs if run.run_id == state.current_run_id), None)
    waiting = list_waits(state, None if live is None else live.turn)
    if viewed.sessions is None and at_end:
        found = await find_thread(viewed.threads, state.messages_thread_id)
        waiting = await read_waits(viewed, state, found.facts, None)
    children = await read_children(viewed, state.session_id, part)
    is_live = state.current_run_id is not None and at_end
    facts = SessionFacts(
        runs=runs,
        entries=entries,
        waiting=waiting,
        outcomes=list_outcomes(state),
        children=children,
        ended_children=await find_ended_children(viewed, children) if is_live else {},
        call_errors=await _read_call_errors(viewed, state, part, entries) if is_live else {},
        live=is_live,
        steps_before=await _count_steps_before(viewed, state, part, entries),
    )
    return facts, problem


async def _read_call_errors(
    viewed: ViewedSessions, state: SessionState, part: MessagesPart, entries: Sequence[UsageEntry]
) -> dict[str, str]:
    """Why calls of the newest message have failed, where usage says that one has."""
    newest = f"tool/{part.messages[-1].id}." if part.messages else ""
    failed = any(
        isinstance(each, ToolUsageEntry) and each.id.startswith(newest) and not each.success
        for each in entries
    )
    return await read_call_errors(viewed, state.session_id) if newest and failed else {}


async def _count_steps_before(
    viewed: ViewedSessions, state: SessionState, part: MessagesPart, entries: Sequence[UsageEntry]
) -> int | None:
    """How many steps of its first turn stand before a part; where usage doesn't tell, they are counted."""
    if part.begins_turn or not part.messages:
        return 0
    told = find_steps_before(part.messages, entries)
    if told is not None:
        return told
    reader = PartReader(viewed.threads, state.messages_thread_id)
    begin = await find_begin(lambda stop: reader.read(0, stop, backward=True), part.first, most=_COUNTED)
    return None if begin is None else begin.steps


async def read_children(
    viewed: ViewedSessions, session_id: str, part: MessagesPart
) -> Sequence[SubSessionRef]:
    """References to sub-agents' sessions, for a part that has calls."""
    if viewed.sessions is None or not any(each.kind in _MAY_CALL for each in part.messages):
        return ()
    return await viewed.sessions.list_sub_session_refs(session_id)


async def hide_sessions(
    viewed: ViewedSessions, turns: Sequence[ConversationTurn]
) -> tuple[ConversationTurn, ...]:
    """Turns without the ids of those sub-agents' sessions that the viewer may not see."""
    if viewed.admits_all:
        return tuple(turns)
    return tuple([await _hide_in_turn(viewed, each) for each in turns])


async def _hide_in_turn(viewed: ViewedSessions, turn: ConversationTurn) -> ConversationTurn:
    messages = [await _hide_in_message(viewed, each) if each.calls else each for each in turn.messages]
    return turn.model_copy(update={"messages": tuple(messages)})


async def _hide_in_message(viewed: ViewedSessions, message: ConversationMessage) -> ConversationMessage:
    calls = [await hide_session(viewed, each) for each in message.calls]
    return message.model_copy(update={"calls": tuple(calls)})


async def hide_session(viewed: ViewedSessions, call: ConversationCall) -> ConversationCall:
    """A call without the id of its sub-agent's session, if the viewer may not see that."""
    name = call.sub_session_id or (None if call.waiting is None else call.waiting.sub_session_id)
    if name is None or await viewed.hide_unseen_id(name) is not None:
        return call
    waiting = None if call.waiting is None else call.waiting.model_copy(update={"sub_session_id": None})
    return call.model_copy(update={"sub_session_id": None, "waiting": waiting})


async def find_entries(
    viewed: ViewedSessions, state: SessionState, part: MessagesPart, runs: Sequence[Run]
) -> list[UsageEntry]:
    """What usage tells of a part of the thread.

    Of a short session all that its runs used is told, also in steps that were thrown away; of a long one
    what belongs to the messages of the part, and to those runs that were aborted.
    """
    if state.step_count <= FEW_STEPS:
        entries, complete = await read_entries(viewed, state.session_id, runs)
        if complete:
            return entries
    found = {
        each.id: each for each in await viewed.usage.find_entries(state.session_id, list_entry_ids(part))
    }
    aborted = [run for run in runs if run.status.is_discarded][:_MOST_ABORTED]
    for run in aborted:
        of_run = await viewed.usage.get_entries(state.session_id, run_id=run.run_id, limit=_ENTRIES)
        found.update((each.id, each) for each in of_run)
    return sorted(found.values(), key=lambda each: (each.timestamp, each.id))


async def read_entries(
    viewed: ViewedSessions, session_id: str, runs: Sequence[Run]
) -> tuple[list[UsageEntry], bool]:
    """What these runs used, looked for in the time in which they were under way; and whether it is all."""
    times = [run.started_at for run in runs if run.started_at]
    if not times:
        return [], True
    ends = [run.ended_at for run in runs]
    last = None if None in ends else max(end for end in ends if end is not None) + _CLOCKS
    names = {run.run_id for run in runs}
    query = UsageQuery(session_id=session_id, since=max(min(times) - _CLOCKS, 0), until=last, limit=_ENTRIES)
    found: list[UsageEntry] = []
    for _ in range(0, _MOST_ENTRIES, _ENTRIES):
        page = await viewed.usage.query_usage(query)
        found += [each for each in page.items if each.run_id in names]
        if page.next_cursor is None:
            return found, True
        query = query.model_copy(update={"cursor": page.next_cursor})
    return found, False
