"""A conversation by turns, made of what stores have: messages, runs, usage and calls that wait.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pydantic import JsonValue

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.foreign_rows import find_said, read_foreign_row
from helix_temporal.models.foreign_rows.row import ForeignRow, NamedCall
from helix_temporal.models.ids import make_result_id
from helix_temporal.models.messages import Message, Role, ToolCall, decode_message, invalid_arguments
from helix_temporal.models.states import SubSessionRef
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.turns import starts_in
from helix_temporal.models.usage import SubAgentUsageEntry, UsageEntry
from helix_temporal.models.waiting import find_waiting_call, name_failure
from helix_temporal.stores.usage import sum_costs
from helix_temporal.views.foreign_calls import find_arguments, find_result
from helix_temporal.views.models import (
    FAILED_CALLS,
    CallStatus,
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    ShownTokens,
    TurnAttempt,
    TurnPart,
    WaitingFor,
)
from helix_temporal.views.problems import describe_problem
from helix_temporal.views.shortening import PAGE_CHARACTERS, shorten_object, shorten_text, shorten_value
from helix_temporal.views.turn_steps import number_steps
from helix_temporal.views.usage import (
    RecordedUsage,
    add_tokens,
    duration_of,
    status_of_entry,
    tokens_of_message,
)

MAX_ROWS: Final = 240
"""Messages of a part, and messages and calls that a page shows of it.

Messages are never left out: calls are, of older messages first, where one message asks for hundreds.
"""
_MOST_ATTEMPTS: Final = 20
"""Of one turn, and those that belong to none, the newest are shown; the list of runs has all."""
_MOST_IDS: Final = 10_000
_DECIDED: Final[Mapping[str, CallStatus]] = {"denied": "denied", "expired": "expired"}
_ENDS: Final[Mapping[str, CallStatus]] = {**_DECIDED, "result": "done", "error": "failed"}
"""How a call has ended by the answer that it waited for; one that was approved has not."""
_ROLES: Final[dict[str, Any]] = {
    Kind.USER: "user",
    Kind.ANSWER: "assistant",
    Kind.CALLS: "assistant",
    Kind.RESULT: "tool",
    Kind.OTHER: "foreign",
}


@dataclass(frozen=True, slots=True)
class MessagesPart:
    """Messages of a thread that follow each other.

    Attributes:
        first: Position of the first one.
        id_before: Of the message before the first one; empty at the begin, None where it is not known.
        begins_turn: The first one begins a turn; otherwise it stands in the middle of one.
        behind: Messages that follow, only looked at for results of calls.
        ends_turn: The last one ends a turn, or is the newest there is; otherwise the turn goes on behind it.
        committed, head: Of the thread.
        unread: Not all of the thread can be read: what is not here may be there all the same.
    """

    first: int
    messages: tuple[StoredMessage, ...]
    id_before: str | None = ""
    begins_turn: bool = True
    behind: tuple[StoredMessage, ...] = ()
    ends_turn: bool = True
    committed: int = 0
    head: int = 0
    unread: bool = False

    @property
    def stop(self) -> int:
        """Position behind the last one."""
        return self.first + len(self.messages)


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What is known of a session beside its messages, as far as a part of the thread wants it.

    Attributes:
        runs: In any order.
        entries: Of usage.
        waiting: What the session waits for.
        outcomes: How calls that waited were answered, by what `WaitingFor.call_id` was.
        children: References to sub-agents' sessions.
        ended_children: How sub-agents have ended whose results no step has taken yet, by their sessions' ids.
        call_errors: Why calls of the newest step have failed, by the provider's ids, as the stream tells.
        live: A run is under way, so that calls without a result may be running.
        steps_before: Steps of the first turn that stand before a part that begins in its middle; None: not
            known.
    """

    runs: Sequence[Run] = ()
    entries: Sequence[UsageEntry] = ()
    waiting: Sequence[WaitingFor] = ()
    outcomes: Mapping[str, str] = field(default_factory=dict)
    children: Sequence[SubSessionRef] = ()
    ended_children: Mapping[str, CallStatus] = field(default_factory=dict)
    call_errors: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    steps_before: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, oldest first, and attempts that belong to none of them."""

    turns: tuple[ConversationTurn, ...]
    lost: tuple[TurnAttempt, ...] = ()


def build_conversation(
    part: MessagesPart,
    facts: SessionFacts,
    *,
    most: int | None = PAGE_CHARACTERS,
    rows: int | None = MAX_ROWS,
) -> Conversation:
    """The turns in a part of a thread.

    Args:
        part: The messages.
        facts: What is known beside them.
        most: Characters of a text, of arguments or a result that are shown; None for all.
        rows: Messages and calls that are shown; None for all.  Calls get what the messages leave.
    """
    usage = RecordedUsage.of(facts.entries)
    placed = _place_messages(part.messages, part.first)
    calls = _pair_calls([*placed, *_place_messages(part.behind, part.stop)])
    starts = [0, *starts_in(part.messages, from_begin=part.first == 0)] if part.messages else []
    attempts, lost = _assign_runs(part, starts, facts.runs, usage)
    stops = [*starts[1:], len(placed)] if starts else []
    shown = sum(1 for each in placed if each.position not in calls.paired)
    builder = _TurnBuilder(
        part, facts, usage, calls, most, _CallBudget(None if rows is None else max(rows - shown, 0))
    )
    # The newest calls get the rows first.
    turns = [
        builder.build_turn(placed[start:stop], attempts.get(start, ()))
        for start, stop in reversed(list(zip(starts, stops, strict=True)))
    ]
    turns.reverse()
    return Conversation(tuple(_number_turns(turns, counted=part.first == 0 and not facts.runs)), lost)


def build_message(part: MessagesPart, position: int, facts: SessionFacts) -> ConversationMessage:
    """One message of a part, whole."""
    placed = _place_messages(part.messages, part.first)
    calls = _pair_calls([*placed, *_place_messages(part.behind, part.stop)])
    builder = _TurnBuilder(part, facts, RecordedUsage.of(facts.entries), calls, None, _CallBudget(None))
    steps = _number_steps(part, facts, part.first, part.messages)
    return builder.build_message(placed[position - part.first], steps.get(position))


def number_turn(part: MessagesPart, runs: Sequence[Run]) -> int | None:
    """The number of the turn that the first message of a part belongs to; None where it is not known."""
    attempts, _ = _assign_runs(part, [0], runs, RecordedUsage())
    kept = find_kept_attempt(attempts.get(0, ()))
    if kept is not None:
        return kept.turn
    return 1 if part.first == 0 and not runs else None


# ---- messages ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """A message at its place; without what it says where its body is damaged."""

    position: int
    stored: StoredMessage
    message: Message | None
    row: ForeignRow | None = None
    damage: str | None = None


def _place_messages(messages: Sequence[StoredMessage], first: int) -> list[_Placed]:
    return [_place_message(at, each) for at, each in enumerate(messages, first)]


def _place_message(position: int, stored: StoredMessage) -> _Placed:
    try:
        message = decode_message(stored)
    except ArchiveCorruptError as error:
        return _Placed(position, stored, None, damage=describe_problem(error))
    return _Placed(position, stored, message, read_foreign_row(message))


# ---- calls and results ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """A call, and the message with its result."""

    asked: _Placed
    at: int
    id: str | None
    name: str | None
    call: ToolCall | None = None
    answer: _Placed | None = None


@dataclass(slots=True)
class _Calls:
    """Calls by the position of the message that asks; and positions of results that have a call."""

    by_position: dict[int, list[_Call]] = field(default_factory=dict)
    paired: set[int] = field(default_factory=set)


def _pair_calls(placed: Iterable[_Placed]) -> _Calls:
    """Calls with their results.  Providers' ids come again in later turns: a result is the newest call's."""
    found, open_calls = _Calls(), list[_Call]()
    for each in placed:
        results = _results_in(each)
        for result in results:
            call = _find_call(open_calls, each, result)
            if call is not None:
                call.answer = each
                open_calls.remove(call)
                results = [other for other in results if other is not result]
        if not results and _is_only_result(each):
            found.paired.add(each.position)
        asked = _calls_in(each)
        if asked:
            found.by_position[each.position] = asked
            open_calls += asked
    return found


def _is_only_result(placed: _Placed) -> bool:
    """Whether a message is shown with the calls that it answers; in some foreign rows users speak as well."""
    if placed.row is None:
        return placed.message is not None and placed.message.role == "tool"
    return bool(placed.row.results) and not placed.row.calls and find_said(placed.stored) is None


def _calls_in(placed: _Placed) -> list[_Call]:
    if placed.row is not None:
        return [_Call(placed, at, each.id, each.name) for at, each in enumerate(placed.row.calls)]
    if placed.message is None:
        return []
    return [_Call(placed, at, each.id, each.name, each) for at, each in enumerate(placed.message.tool_calls)]


def _results_in(placed: _Placed) -> list[NamedCall]:
    if placed.row is not None:
        return list(placed.row.results)
    message = placed.message
    if message is None or message.role != "tool":
        return []
    return [NamedCall(message.tool_call_id, message.name)]


def _find_call(open_calls: Sequence[_Call], placed: _Placed, result: NamedCall) -> _Call | None:
    """The call that a result answers: by the id of the result, by the call's, or by the name of the tool."""
    waiting = [each for each in reversed(open_calls) if each.asked.position < placed.position]
    for call in waiting:
        if make_result_id(call.asked.stored.id, call.at) == placed.stored.id:
            return call
    same = [each for each in waiting if result.id is not None and each.id == result.id]
    if not same and result.id is None:
        same = [each for each in waiting if result.name is not None and each.name == result.name]
    if not same:
        return None
    # Of several calls of one message that have the same id the first is answered first.
    newest = same[0].asked.position
    return [each for each in same if each.asked.position == newest][-1]


# ---- usage ------------------------------------------------------------------------------------------


def list_entry_ids(part: MessagesPart) -> list[str]:
    """The ids under which usage was recorded of the steps and calls in a part of a thread."""
    ids: list[str] = []
    for placed in _place_messages(part.messages, part.first):
        message = placed.message
        if message is None or message.role != "assistant":
            continue
        ids.append(f"step/{message.id}")
        if message.summary_usage is not None:
            ids.append(f"summary/{message.summary_usage.id}")
        for at in range(len(message.tool_calls)):
            result_id = make_result_id(message.id, at)
            ids += (f"tool/{result_id}", f"child/{result_id}", f"tool-tokens/{result_id}")
    return ids[:_MOST_IDS]


# ---- runs -------------------------------------------------------------------------------------------


def _assign_runs(
    part: MessagesPart, starts: Sequence[int], runs: Sequence[Run], usage: RecordedUsage
) -> tuple[dict[int, tuple[TurnAttempt, ...]], tuple[TurnAttempt, ...]]:
    """Attempts by the turn at whose start they began, and those that began at none."""
    places = {_place_of(part, at): at for at in starts if at > 0 or part.begins_turn}
    # In the middle of a turn its runs are those that began before this part.
    if starts and not part.begins_turn:
        earlier = [run for run in runs if run.start_head.position < part.first]
        newest = max(earlier, key=lambda run: run.turn, default=None)
        if newest is not None:
            places[newest.start_head.position, newest.start_head.last_id] = 0
    found: dict[int, list[Run]] = {}
    lost: list[Run] = []
    for run in sorted(runs, key=lambda run: run.turn):
        head = run.start_head
        at = places.get((head.position, head.last_id))
        if at is None:
            at = places.get((head.position, None))
        if at is not None:
            found.setdefault(at, []).append(run)
        elif _is_lost_here(part, run):
            lost.append(run)
    attempts = {
        at: tuple(attempt_of(run, usage, kept=run is _kept_run(each)) for run in each[-_MOST_ATTEMPTS:])
        for at, each in found.items()
    }
    return attempts, tuple(attempt_of(run, usage, kept=False) for run in lost[-_MOST_ATTEMPTS:])


def _place_of(part: MessagesPart, at: int) -> tuple[int, str | None]:
    before = part.id_before if at == 0 else part.messages[at - 1].id
    return part.first + at, before


def _is_lost_here(part: MessagesPart, run: Run) -> bool:
    """Whether this is the part at which a run is told of that is in the thread no more.

    One under way may have stored nothing yet.  Where not all can be read, only what was discarded is known to
    be gone.
    """
    if run.status.live or (part.unread and not run.status.is_discarded):
        return False
    position = run.start_head.position
    return part.first <= position < part.stop or (position >= part.stop and part.stop >= part.head)


def _kept_run(runs: Sequence[Run]) -> Run | None:
    """Of runs that began at one place, that whose messages stand there; see `timeline.find_kept_runs`."""
    kept = [run for run in runs if not run.status.is_discarded]
    return kept[-1] if kept else None


def find_kept_attempt(attempts: Iterable[TurnAttempt]) -> TurnAttempt | None:
    """Of the attempts of a turn, that whose messages are in the thread; None where there is none."""
    return next((each for each in attempts if each.kept), None)


def attempt_of(run: Run, usage: RecordedUsage, *, kept: bool = True) -> TurnAttempt:
    """A run as it is shown."""
    return TurnAttempt(
        run_id=run.run_id,
        turn=run.turn,
        status=run.status,
        reason=run.completion_reason,
        error=run.error,
        steps=run.step_count,
        start=run.start_head.position,
        kept=kept,
        started_at=run.started_at or None,
        ended_at=run.ended_at,
        workflow_id=run.workflow_id,
        workflow_run_id=run.workflow_run_id,
        model_calls=usage.list_model_calls(run.run_id),
    )


# ---- turns ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _CallBudget:
    """Calls that may still be shown on the page; None: no limit."""

    left: int | None

    def take(self, wanted: int) -> int:
        """How many of these calls are shown."""
        if self.left is None:
            return wanted
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


@dataclass(frozen=True, slots=True)
class _TurnBuilder:
    part: MessagesPart
    facts: SessionFacts
    usage: RecordedUsage
    calls: _Calls
    most: int | None
    budget: _CallBudget

    def build_turn(self, placed: Sequence[_Placed], attempts: tuple[TurnAttempt, ...]) -> ConversationTurn:
        """A turn of these messages."""
        start, stop = placed[0].position, placed[-1].position + 1
        steps = _number_steps(self.part, self.facts, start, [each.stored for each in placed])
        shown = [each for each in placed if each.position not in self.calls.paired]
        messages = tuple(self.build_message(each, steps.get(each.position)) for each in shown)
        kept = find_kept_attempt(attempts)
        calls = [call for each in placed for call in self.calls.by_position.get(each.position, ())]
        return ConversationTurn(
            number=None if kept is None else kept.turn,
            start=start,
            stop=stop,
            part_of_turn=TurnPart(
                begins=_begins_turn(self.part, start),
                ends=stop < self.part.stop or self.part.ends_turn,
                first_step=min(steps.values(), default=None),
            ),
            messages=messages,
            attempts=attempts,
            unfinished=stop > self.part.committed,
            tokens=_sum_tokens(kept, messages),
            cost_usd=None if kept is None else sum_costs(each.cost_usd for each in kept.model_calls),
            duration_ms=None if kept is None else kept.duration_ms,
            tool_calls=len(calls),
            failed_calls=sum(1 for each in calls if self._has_failed(each)),
            discarded_answers=0 if kept is None else self.usage.count_discarded_answers(kept.run_id),
        )

    def build_message(self, placed: _Placed, step: int | None) -> ConversationMessage:
        """One message, with its calls and their results."""
        message = placed.message
        size = len(placed.stored.body)
        if message is None:
            return ConversationMessage(
                message_id=placed.stored.id,
                position=placed.position,
                role=_ROLES.get(placed.stored.kind, "foreign"),
                size=size,
                damage=placed.damage,
            )
        said = _read_content(placed, message, whole=self.most is None)
        text, cut = shorten_text(said.text, self.most)
        thinking, thinking_cut = shorten_text(said.thinking, self.most)
        parts, parts_cut = _shorten_parts(said.parts, self.most)
        metadata, metadata_cut = shorten_object(message.metadata, self.most)
        entry = self.usage.steps.get(placed.stored.id)
        asked = self.calls.by_position.get(placed.position, [])
        shown = asked[: self.budget.take(len(asked))]
        return ConversationMessage(
            message_id=placed.stored.id,
            position=placed.position,
            role=_role_of(message, placed.row),
            text=text,
            thinking=thinking,
            parts=parts,
            calls=tuple(self._build_call(each) for each in shown),
            calls_left_out=len(asked) - len(shown),
            is_error=message.is_error,
            finish=None if message.finish is None else message.finish.value,
            format=message.format,
            step=step if step is not None or entry is None else entry.step_count,
            tokens=None if message.usage is None else tokens_of_message(message.usage),
            metadata=metadata,
            size=size,
            cut=cut + thinking_cut + parts_cut + metadata_cut,
        )

    def _build_call(self, call: _Call) -> ConversationCall:
        answer_id, result_id = call.asked.stored.id, make_result_id(call.asked.stored.id, call.at)
        entry = self.usage.tools.get(result_id)
        child = self.usage.children.get(result_id)
        waiting = None if call.answer is not None else self._find_waiting(call)
        arguments, cut = shorten_value(_arguments_of(call), self.most)
        result, result_cut = shorten_value(_result_of(call), self.most)
        status = self._status_of(call, waiting)
        measured = entry or child
        return ConversationCall(
            call_id=call.id or "",
            name=call.name or "",
            position=call.asked.position,
            at=call.at,
            arguments=arguments,
            status=status,
            result=result,
            result_position=None if call.answer is None else call.answer.position,
            result_due=waiting is None and self._is_under_way(call) and status != "running",
            error=(_error_of(call) or self._find_live_error(call)) if status == "failed" else None,
            duration_ms=None if measured is None else duration_of(measured),
            attempts=1 if entry is None else entry.attempts,
            sub_session_id=self._find_child(call, child, answer_id),
            waiting=waiting,
            cut=cut + result_cut,
        )

    def _status_of(self, call: _Call, waiting: WaitingFor | None) -> CallStatus:
        if call.answer is not None:
            return self._status_of_answer(call, call.answer)
        if waiting is not None:
            return "waiting"
        return self._find_end(call) or ("running" if self._is_under_way(call) else "unanswered")

    def _is_under_way(self, call: _Call) -> bool:
        """Whether the turn goes on, and the next step takes the call's result."""
        return self.facts.live and call.answer is None and call.asked.position >= self.part.committed

    def _find_end(self, call: _Call) -> CallStatus | None:
        """How a call has ended whose result is not in the thread yet; None where nobody tells."""
        entry = self.usage.tools.get(make_result_id(call.asked.stored.id, call.at))
        if entry is not None:
            return status_of_entry(entry)
        outcome = find_waiting_call(
            self.facts.outcomes,
            call.asked.stored.id,
            call.id or "",
            call.at,
            is_repeat=self._is_repeat(call),
        )
        child = self._find_child(call, None, call.asked.stored.id)
        if outcome is None and child is not None:
            return self.facts.ended_children.get(child)
        return None if outcome is None else _ENDS.get(outcome)

    def _find_live_error(self, call: _Call) -> str | None:
        """Why a call has failed whose result is not in the thread; None where its id is another one's too."""
        same = [each for each in self.calls.by_position[call.asked.position] if each.id == call.id]
        if call.id is None or len(same) > 1 or not self._is_under_way(call):
            return None
        return self.facts.call_errors.get(call.id)

    def _has_failed(self, call: _Call) -> bool:
        found = self._find_end(call) if call.answer is None else self._status_of_answer(call, call.answer)
        return found in FAILED_CALLS

    def _status_of_answer(self, call: _Call, answer: _Placed) -> CallStatus:
        if not _is_failed(call):
            return "done"
        outcome = find_waiting_call(self.facts.outcomes, call.asked.stored.id, call.id or "", call.at)
        text = "" if answer.message is None else answer.message.text
        return _DECIDED.get(outcome or "") or name_failure(text)

    def _find_waiting(self, call: _Call) -> WaitingFor | None:
        found = {each.call_id: each for each in self.facts.waiting}
        mine = find_waiting_call(
            found, call.asked.stored.id, call.id or "", call.at, is_repeat=self._is_repeat(call)
        )
        mine = mine or found.get(call.id or "")
        if mine is not None:
            return mine if mine.tool in {"", call.name} else None
        below = [each for each in self.facts.waiting if each.kind == "sub_agent"]
        child = self._find_child(call, None, call.asked.stored.id)
        return next((each for each in below if child is not None and each.sub_session_id == child), None)

    def _is_repeat(self, call: _Call) -> bool:
        """Whether an earlier call of the same message has the same id, and no result either."""
        earlier = self.calls.by_position[call.asked.position][: call.at]
        return any((each.id, each.name, each.answer) == (call.id, call.name, None) for each in earlier)

    def _find_child(self, call: _Call, entry: SubAgentUsageEntry | None, answer_id: str) -> str | None:
        """The session of a sub-agent's call."""
        if entry is not None:
            return entry.sub_session_id
        named = {call.id, make_result_id(answer_id, call.at)}
        found = [
            each
            for each in self.facts.children
            if each.parent_tool_call_id in named and each.tool in {"", call.name}
        ]
        return found[-1].sub_session_id if found else None


def _begins_turn(part: MessagesPart, position: int) -> bool:
    """Whether the turn that a page shows from here on begins here, too."""
    return position > part.first or part.begins_turn


def _number_steps(
    part: MessagesPart, facts: SessionFacts, first: int, messages: Sequence[StoredMessage]
) -> dict[int, int]:
    """The steps of one turn by the positions of their answers; none where their numbers are not known."""
    before = 0 if _begins_turn(part, first) else facts.steps_before
    return {} if before is None else number_steps(messages, first, before)


def _number_turns(turns: Sequence[ConversationTurn], *, counted: bool) -> list[ConversationTurn]:
    """Turns counted from the thread's begin, where the session store has no runs of them."""
    if not counted:
        return list(turns)
    return [each.model_copy(update={"number": number}) for number, each in enumerate(turns, 1)]


def _sum_tokens(kept: TurnAttempt | None, messages: Iterable[ConversationMessage]) -> ShownTokens:
    recorded = kept.model_calls if kept is not None else ()
    told = [each.tokens for each in recorded] or [each.tokens for each in messages if each.tokens is not None]
    return reduce(add_tokens, told, ShownTokens())


# ---- what is said -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Said:
    text: str = ""
    thinking: str = ""
    parts: tuple[dict[str, JsonValue], ...] | None = None


def _role_of(message: Message, row: ForeignRow | None) -> Role:
    """Who speaks, also in a row of another system that can be read."""
    if row is None:
        return message.role
    return row.role or ("assistant" if row.calls else message.role)


def _read_content(placed: _Placed, message: Message, *, whole: bool) -> _Said:
    content: Any = message.content
    if placed.row is not None:
        said = find_said(placed.stored)
        if said is None and placed.row.calls:
            return _Said()  # its calls are all that it says
        content = content if said is None else said.content
    if isinstance(content, str):
        return _Said(content)
    texts = [str(part.get("text", "")) for part in content if part.get("type") == "text"]
    thoughts = [str(part.get("text", "")) for part in content if part.get("type") == "thinking"]
    others = [part for part in content if part.get("type") not in {"text", "thinking"}]
    parts = tuple(dict(each) if whole else _without_bytes(each) for each in others)
    return _Said("".join(texts), "".join(thoughts), parts)


def _shorten_parts(
    parts: tuple[dict[str, JsonValue], ...] | None, most: int | None
) -> tuple[tuple[dict[str, JsonValue], ...] | None, int]:
    """Parts as far as they fit; an image may be an address that holds all of its bytes."""
    if parts is None:
        return None, 0
    shown = [shorten_object(each, most) for each in parts]
    return tuple(part for part, _ in shown), sum(cut for _, cut in shown)


def _without_bytes(part: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    data = part.get("data")
    if not isinstance(data, str):
        return dict(part)
    return {**{name: each for name, each in part.items() if name != "data"}, "bytes": len(data) * 3 // 4}


def _arguments_of(call: _Call) -> JsonValue:
    if call.call is None:
        return None if call.asked.message is None else find_arguments(call.asked.message, call.id, call.name)
    text = invalid_arguments(call.call.arguments)
    return call.call.arguments if text is None else text


def _result_of(call: _Call) -> JsonValue:
    answer = call.answer
    if answer is None or answer.message is None:
        return None
    if answer.row is not None:
        return find_result(answer.message, call.id, call.name)
    content: JsonValue = (
        answer.message.content
        if isinstance(answer.message.content, str)
        else [_without_bytes(each) for each in answer.message.content]
    )
    return content


def _is_failed(call: _Call) -> bool:
    return call.answer is not None and (call.answer.message is None or call.answer.message.is_error)


def _error_of(call: _Call) -> str | None:
    if call.answer is None:
        return None
    if call.answer.message is None:
        return call.answer.damage
    return shorten_text(call.answer.message.text, PAGE_CHARACTERS)[0]
