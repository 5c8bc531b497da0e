"""One session: where it stands, who waits, what it used, how it is stored."""

from pydantic import ValidationError

from helix_temporal.errors import HelixError
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.states import SessionState
from helix_temporal.session.record import SessionRecord, find_suspension, parse_record
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.children import list_children
from helix_temporal.views.conversation import attempt_of
from helix_temporal.views.models import SessionView, TurnAttempt, UsageSums, WaitingFor
from helix_temporal.views.problems import PARTIAL_READ_ERRORS, describe_problem
from helix_temporal.views.storage import FoundThread, find_thread, place_of
from helix_temporal.views.usage import RecordedUsage, read_short_usage
from helix_temporal.views.waits import list_waits, list_waits_of_thread


async def read_session(viewed: ViewedSessions, state: SessionState) -> SessionView:
    """Where a session stands; what cannot be read is left out, and `problem` says why."""
    thread_id = state.messages_thread_id
    found = await find_thread(viewed.threads, thread_id)
    place = place_of(thread_id, found, archives=viewed.threads.archives)
    record = None if found.facts is None else read_record(found.facts)
    newest = await _read_newest_run(viewed, state.session_id)
    live = newest if newest is not None and newest.status.live else None
    waiting = await read_waits(viewed, state, found.facts, None if live is None else live.turn)
    problem = place.problem
    try:
        usage = await read_short_usage(viewed, state.session_id, record)
    except PARTIAL_READ_ERRORS as error:
        usage = UsageSums(session_ids=(state.session_id,), complete=False)
        problem = problem or describe_problem(error)
    children = await list_children(viewed, state.session_id)
    source = None if state.forked_from is None else state.forked_from.session_id
    return SessionView(
        overview=await viewed.show_overview(state),
        mode=state.mode,
        version=state.version,
        thread_id=thread_id,
        messages=place.all_messages,
        turns=_count_turns(newest, record, found),
        live_run=live,
        waiting=tuple([await hide_waiting_session(viewed, each) for each in waiting]),
        failure_reason=state.failure_reason,
        error=state.error,
        output=state.output,
        children=tuple(each.overview.session_id for each in children.shown),
        root_session_id=await viewed.hide_unseen_id(state.root_session_id),
        forked_from=await viewed.hide_unseen_id(source),
        usage=usage,
        place=place,
        problem=problem,
    )


def _count_turns(newest: TurnAttempt | None, record: SessionRecord | None, found: FoundThread) -> int | None:
    """How many turns were begun: by the newest run, or as the thread tells; None where neither is known."""
    if newest is not None:
        return newest.turn
    if found.facts is None and found.problem is not None:
        return None
    return 0 if record is None else record.turns


def read_record(facts: ThreadFacts) -> SessionRecord | None:
    """The record in a thread's slice; None for a slice that is none."""
    try:
        return parse_record(facts.slice)
    except (ValidationError, HelixError):
        return None


async def read_waits(
    viewed: ViewedSessions, state: SessionState, facts: ThreadFacts | None, turn: int | None
) -> tuple[WaitingFor, ...]:
    """What a session waits for: as its state says, or its thread where there is no session store."""
    waiting = list_waits(state, turn)
    if waiting or viewed.sessions is not None or facts is None:
        return waiting
    record = read_record(facts)
    suspended = None if record is None else find_suspension(record, facts.head)
    if suspended is None:
        return ()
    return list_waits_of_thread(suspended, await _read_newest_message(viewed, facts))


async def hide_waiting_session(viewed: ViewedSessions, waiting: WaitingFor) -> WaitingFor:
    """What a session waits for, without the id of another session that the viewer may not see."""
    seen = await viewed.hide_unseen_id(waiting.sub_session_id)
    return waiting if seen == waiting.sub_session_id else waiting.model_copy(update={"sub_session_id": None})


async def _read_newest_message(viewed: ViewedSessions, facts: ThreadFacts) -> Message | None:
    try:
        page = await viewed.threads.read(ReadPage.of_message(facts.thread_id, facts.head.position - 1))
        return decode_message(page.messages[0]) if page.messages else None
    except PARTIAL_READ_ERRORS:
        return None  # the calls are told without their arguments


async def _read_newest_run(viewed: ViewedSessions, session_id: str) -> TurnAttempt | None:
    if viewed.sessions is None:
        return None
    page = await viewed.sessions.list_runs(session_id, limit=1, count=False)
    return attempt_of(page.items[0], RecordedUsage()) if page.items else None
