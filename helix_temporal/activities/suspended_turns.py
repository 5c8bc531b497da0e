"""Steps that wait for a client or a person: what the record says of them, and how a turn goes on later."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from helix_temporal.activities.payloads import FAR, Payloads
from helix_temporal.activities.record_store import update_record
from helix_temporal.activities.step_facts import lost_answer_error, older_copy_error
from helix_temporal.agents import Agent
from helix_temporal.models.base import only_set, only_truthy, wall_clock_ms
from helix_temporal.models.ids import make_result_id
from helix_temporal.models.limits import INLINE_RESULT
from helix_temporal.models.messages import (
    Message,
    ToolResult,
    Usage,
    UserMessage,
    decode_message,
    shorten_arguments,
    why_not_run,
)
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.steps import SaveValuesInput
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.models.waiting import CallOutcome, WaitingCall, name_waiting_call
from helix_temporal.session.pending_calls import list_unfinished_children
from helix_temporal.session.record import SessionRecord, apply_suspension, find_suspension, parse_record
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore


def list_waiting_calls(agent: Agent, answer: Message, now: int) -> tuple[WaitingCall, ...]:
    """Those calls of an answer that a client, or a person, must answer.

    Their ids are unique in the session and the same whenever they are looked at again: the provider's
    own, which providers use again in each turn, with the id of the answer that asks.
    """
    waiting: list[WaitingCall] = []
    taken: set[str] = set()
    for at, call in enumerate(answer.tool_calls):
        tool = agent.find_tool(call.name)
        facts = None if tool is None else tool.build_facts(agent.name)
        if facts is None or not (facts.kind == "client" or facts.approval):
            continue
        if why_not_run(call) is not None:
            continue  # the model is told at once
        name = name_waiting_call(answer.id, call.id, at, taken)
        taken.add(name)
        within = facts.answer_within
        given: dict[str, Any] = {"at": at} if at else {}
        given |= {} if within is None else {"until": now + int(within * 1000)}
        given |= {} if facts.kind == "client" else {"kind": "approval"}
        waiting.append(WaitingCall(id=name, since=now, **given))
    return tuple(waiting)


def list_step_waits(slice_data: bytes, agent: Agent, answer: Message, head: Head) -> tuple[WaitingCall, ...]:
    """The calls that a stored step waits for: from its slice; computed anew if the slice has none."""
    suspended = find_suspension(parse_record(slice_data), head)
    return list_waiting_calls(agent, answer, wall_clock_ms()) if suspended is None else suspended.calls


async def save_suspension(threads: ThreadStore, request: SaveValuesInput) -> int:
    """Keep what is known of a suspended step's calls in the record, and that sub-agents wait.

    Raises:
        FencedError: A newer open has the thread.
    """
    saved = await update_record(
        threads,
        request.thread_id,
        request.epoch,
        lambda stored: apply_suspension(stored.record, request),
        "a suspension was saved",
    )
    return saved.version


async def read_suspended_turn(
    threads: ThreadStore,
    payloads: Payloads,
    header: HotHeader,
    record: SessionRecord,
    responses: Mapping[str, CallOutcome],
    inline_arguments: int,
) -> SuspendedTurn | None:
    """The turn that an open finds suspended, read from the thread; None where none is.

    ``responses`` are answers that were given to the session store meanwhile, by the calls' ids; arguments
    of more than ``inline_arguments`` bytes are left out.
    """
    suspended = find_suspension(record, header.head)
    if suspended is None or header.head.position <= header.committed:
        return None
    start, stored = await read_turn_under_way(threads, header)
    messages = [decode_message(each) for each in stored]
    outcomes = {each.at: each for each in suspended.outcomes}
    for call in suspended.calls:
        if call.id in responses and call.at not in outcomes:
            outcomes[call.at] = await _shorten_answer(payloads, header.thread_id, call, responses[call.id])
    users = [message for message in messages if message.role == "user"]
    usage = sum_usage(messages, outcomes.values())
    known = tuple(outcomes[at] for at in sorted(outcomes))
    children = list_unfinished_children(suspended.model_copy(update={"outcomes": known}))
    return SuspendedTurn(
        head=header.head,
        start=start,
        run_id=record.run,
        steps=sum(1 for each in messages if each.role == "assistant"),
        usage=usage,
        messages=tuple([await _shorten_message(payloads, header.thread_id, each) for each in users]),
        calls=tuple(shorten_arguments(call, inline_arguments) for call in messages[-1].tool_calls),
        waiting=suspended.calls,
        outcomes=known,
        **only_truthy(children=children),
        **only_set(traceparent=record.trace.root if record.trace else None),
    )


def usage_before_turn(record: SessionRecord, turn: SuspendedTurn) -> Usage:
    """What the session used before the turn that is suspended."""
    return record.usage + _sum_result_usage(turn.outcomes) - turn.usage


def sum_usage(messages: Iterable[Message], outcomes: Iterable[CallOutcome]) -> Usage:
    """What a turn used so far, also for results that are not in the thread yet."""
    return sum((each.usage for each in messages if each.usage), start=_sum_result_usage(outcomes))


def _sum_result_usage(outcomes: Iterable[CallOutcome]) -> Usage:
    """What tools used whose results are not in the thread yet."""
    results = (each.result for each in outcomes if each.result is not None)
    return sum((each.usage for each in results if each.usage is not None), start=Usage())


async def read_turn_under_way(
    threads: ThreadStore, header: HotHeader | ThreadFacts
) -> tuple[Head, list[StoredMessage]]:
    """Where the turn under way began, and its messages.

    Raises:
        StoreUnavailableError: The thread went on, or back, since it was looked at.
    """
    first = max(header.committed - 1, 0)
    messages: list[StoredMessage] = []
    position = first
    while position < header.head.position:
        page = await threads.read(
            ReadPage(
                header.thread_id,
                position,
                header.head.position,
                committed_only=False,
                whole=False,
                epoch=header.epoch,
            )
        )
        if page.head != header.head or not page.messages:
            # A store that went back to an older copy since it was opened holds somebody else's turn.
            raise older_copy_error(header.thread_id, header.head, page.head)
        messages += page.messages
        position = page.first + len(page.messages)
    if header.committed == 0:
        return Head(position=0, last_id=""), messages
    return Head(position=header.committed, last_id=messages[0].id), messages[1:]


async def read_messages_under_way(
    threads: ThreadStore, payloads: Payloads, header: HotHeader, at: Head
) -> tuple[UserMessage, ...]:
    """Whose turn stands unfinished behind the place where a workflow goes on that was reset."""
    if header.head.position <= header.committed or at.position != header.committed:
        return ()
    _, messages = await read_turn_under_way(threads, header)
    users = takewhile(lambda message: message.role == "user", map(decode_message, messages))
    return tuple([await _shorten_message(payloads, header.thread_id, each) for each in users])


async def read_results_behind(
    threads: ThreadStore,
    payloads: Payloads,
    header: HotHeader,
    step: Head,
    waiting: Sequence[WaitingCall],
    count: int,
    inline_result: int,
) -> tuple[CallOutcome, ...]:
    """Results of all ``count`` calls of a step, where the thread has gone on from it with them.

    Those of more than ``inline_result`` bytes come by reference.

    Raises:
        HeadMovedError: It has, and they are no longer there: the hot thread went back to an older copy.
    """
    thread_id, stop = header.thread_id, step.position + count
    if stop > header.head.position:
        return ()
    messages: list[StoredMessage] = []
    found = header.head
    while len(messages) < count:
        start = step.position + len(messages)
        page = await threads.read(
            ReadPage(thread_id, start, stop, committed_only=False, whole=False, epoch=header.epoch)
        )
        found = page.head
        if found != header.head and found.position <= header.head.position:
            raise lost_answer_error(thread_id, step)
        if not page.messages:
            break
        messages += page.messages
    if [message.id for message in messages] != [make_result_id(step.last_id, at) for at in range(count)]:
        if found != header.head:
            raise lost_answer_error(thread_id, step)
        return ()
    names = {call.at: call.id for call in waiting}
    answered = {each.id: each for each in parse_record(header.slice).answered}
    outcomes: list[CallOutcome] = []
    for at, message in enumerate(messages):
        result = await shorten_result(payloads, thread_id, decode_message(message), inline_result)
        before = answered.get(names.get(at, ""))
        outcomes.append(CallOutcome(at=at, result=result, **only_set(answered=before)))
    return tuple(outcomes)


async def shorten_result(payloads: Payloads, thread_id: str, message: Message, inline: int) -> ToolResult:
    """A result that is in the thread, as a workflow carries it."""
    carried = await _shorten_message(payloads, thread_id, message, inline)
    fields = only_set(text=carried.text or None, ref=carried.ref, usage=message.usage)
    if message.is_error:
        fields["is_error"] = True
    return ToolResult(**fields)


async def _shorten_answer(
    payloads: Payloads, thread_id: str, call: WaitingCall, found: CallOutcome
) -> CallOutcome:
    """An answer that the session store had; by reference if it is long, as if a client had given it."""
    result = found.result
    if result is not None and len(result.text.encode()) > INLINE_RESULT:
        ref = await payloads.put(thread_id, FAR, f"text/answer-{call.id}", result.text)
        result = result.model_copy(update={"text": "", "ref": ref})
    return found.model_copy(update={"at": call.at, "result": result})


async def _shorten_message(
    payloads: Payloads, thread_id: str, message: Message, inline: int = INLINE_RESULT
) -> UserMessage:
    """A message as a workflow carries it: by reference beyond so many bytes."""
    fields: dict[str, Any] = {"metadata": dict(message.metadata)} if message.metadata else {}
    if isinstance(message.content, str) and len(message.content.encode()) <= inline:
        return UserMessage(id=message.id, text=message.content, **fields)
    ref = await payloads.put(thread_id, FAR, f"text/{message.id}", message.content)
    return UserMessage(id=message.id, ref=ref, **fields)
