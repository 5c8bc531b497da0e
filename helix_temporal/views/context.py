"""What a model was given in one step: read from what the step told with its answer, else worked out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from helix_temporal.activities.context import Window, find_context_start, find_valid_summary
from helix_temporal.activities.usage import name_of_model
from helix_temporal.agents import Agent, ContextPolicy, CountTokens, ToolSpec, estimate_tokens
from helix_temporal.agents.context import Decoded, as_message, describe_content, repair_tool_results
from helix_temporal.errors import ArchiveCorruptError, InvalidRequestError, NotFoundError
from helix_temporal.models.base import dump_json
from helix_temporal.models.messages import (
    GivenContext,
    GivenSummary,
    Message,
    Role,
    ToolCall,
    Usage,
    decode_message,
)
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage, size_of
from helix_temporal.session.record import SessionRecord, Summary
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.views.models import ContextPart, ModelContext
from helix_temporal.views.session_facts import read_record
from helix_temporal.views.shortening import shorten_text
from helix_temporal.views.storage import find_thread
from helix_temporal.views.thread_parts import PartReader
from helix_temporal.views.turn_steps import find_begin
from helix_temporal.views.usage import tokens_of_message

MOST_PARTS: Final = 400
"""Of one context; the oldest messages beyond are folded into one part."""
_FEWEST_MESSAGES: Final = 50
"""So many messages are shown however many tools there are."""
SHOWN_CHARACTERS: Final = 2_000
"""Of the text of one part."""
_ROLES: Final[Mapping[str, Role]] = {Kind.USER: "user", Kind.RESULT: "tool", Kind.ANSWER: "assistant"}

_SCALED: Final = (
    "The tokens of each part are estimates, scaled so that together they are what the provider counted."
)
_ESTIMATED: Final = "The provider told no count of what went in: the tokens are estimates."
_UNTOLD: Final = (
    "The step did not record what its model was given: it was worked out from the agent as it is now."
)
_NO_AGENT: Final = (
    "The agent is not known here: its tools are not shown, nor are instructions that the session has not "
    "pinned. Their tokens are what the other parts leave of the provider's count."
)
_NO_POLICY: Final = (
    "Neither did the step record what its model was given: the messages are those that a context policy "
    "without settings takes."
)
_DYNAMIC: Final = (
    "The instructions are made by a function for each call: their text is not kept, and this view does not "
    "call the function."
)
_CHANGED: Final = (
    "The agent's instructions or tools have changed since: those shown here are the present ones."
)
_NEWEST_SUMMARY: Final = (
    "The summary is the session's newest one; the one that the model was given may have been older."
)
_SUMMARY_GONE: Final = "The text of the summary is not in the thread, or cannot be read."
_COPIED: Final = (
    "The answer was copied from another thread, where it stood at another place: what its step recorded does "
    "not hold here."
)


class ReadableThreads(Protocol):
    """Stores of which only the threads are read."""

    @property
    def threads(self) -> ThreadStore:
        """Messages, and the slice."""
        ...


async def read_context(
    stores: ReadableThreads,
    agents: Mapping[str, Agent],
    thread_id: str,
    session_id: str,
    position: int,
    *,
    turn: int | None = None,
) -> ModelContext:
    """What the model was given whose answer stands at this position.

    Args:
        stores: Where the thread is; nothing is written, and a cold thread stays cold.
        agents: By name; without the session's, instructions and tools are not known.
        thread_id: Of the session.
        session_id: Whose answer it is.
        position: Of the answer in the thread.
        turn: Its turn's number, where the caller knows it.

    Raises:
        NotFoundError: Nothing stands there, or there is no such thread.
        InvalidRequestError: No model's answer stands there.
        StoreUnavailableError: The store that has the answer does not answer itself; what else is away, or
            damaged, is left out with a note.
        ArchiveCorruptError: The answer is damaged.
    """
    threads = stores.threads
    answer = await _read_answer(threads, thread_id, position)
    found = await find_thread(threads, thread_id)
    record = (None if found.facts is None else read_record(found.facts)) or SessionRecord()
    history = _History(PartReader(threads, thread_id), position)
    given = await _find_given(history, PartReader(threads, thread_id), answer.given, agents, record)
    begin = await find_begin(lambda stop: history.reader.read(0, stop, backward=True), position)
    draft = given.draft_parts(history)
    own = _without_summary(answer)
    return ModelContext(
        session_id=session_id,
        turn=turn,
        step=None if begin is None else begin.steps + 1,
        answer=position,
        agent=record.agent,
        model=given.model,
        recorded=given.recorded,
        first=given.first,
        left_out=given.first,
        instructions_changed=given.changed,
        parts=_fold_oldest(apportion_tokens(draft, None if own is None else own.input_tokens)),
        provider_tokens=None if own is None else tokens_of_message(own),
        notes=tuple(filter(None, [history.problem, *given.notes, _ESTIMATED if own is None else _SCALED])),
    )


# -- the thread


async def _read_answer(threads: ThreadStore, thread_id: str, position: int) -> Message:
    """The model's answer at a position.

    Raises:
        NotFoundError: Nothing stands there.
        InvalidRequestError: Something else does.
    """
    page = await threads.read(ReadPage.of_message(thread_id, position))
    found = decode_message(page.messages[0]) if page.messages and page.first == position else None
    if found is None or found.role != "assistant":
        what = "no message" if found is None else f"a message of role {found.role!r}"
        kind = NotFoundError if found is None else InvalidRequestError
        raise kind(
            f"thread {thread_id!r} has {what} at position {position}, a model's answer expected; "
            "give the position of an assistant message"
        )
    return found


class _History:
    """The messages before an answer, read from the newest back, as far as they are wanted.

    Attributes:
        first: Position of the oldest that was read.
        messages: From there up to the answer.
    """

    def __init__(self, reader: PartReader, answer: int) -> None:
        self.reader = reader
        self.first, self.answer = answer, answer
        self.messages: list[StoredMessage] = []

    @property
    def problem(self) -> str | None:
        """Why not all could be read; None where it could."""
        return self.reader.problem

    async def read_since(self, position: int) -> None:
        """Read as far back as there, if that can be read."""
        while self.first > position and await self._read_page(position):
            pass

    async def read_window(self, policy: ContextPolicy) -> None:
        """Read more than the policy's bounds of messages and bytes hold, or all there is."""
        while self.first > 0 and len(self.messages) <= policy.max_messages:
            if size_of(self.messages) > policy.max_bytes or not await self._read_page(0):
                return

    def count_inputs(self) -> int:
        """How many messages the step itself brought: those of one kind that stand before its answer."""
        count = 0
        last = self.messages[-1].kind if self.messages else ""
        for message in reversed(self.messages):
            if message.kind != last or last not in {Kind.USER, Kind.RESULT}:
                break
            count += 1
        return count

    def as_window(self) -> Window:
        """What was read, as a step has it."""
        at = len(self.messages) - self.count_inputs()
        head = Head(position=self.first + at, last_id=self.messages[at - 1].id if at else "")
        return Window(self.messages, Decoded(self.messages), self.first, head)

    async def _read_page(self, start: int) -> bool:
        """Read messages before those that were read; False if there are none that can be read."""
        if self.first <= start:
            return False
        page = await self.reader.read(start, self.first, backward=True)
        if page is None or page.first + len(page.messages) != self.first:
            return False
        self.messages = [*page.messages, *self.messages]
        self.first -= len(page.messages)
        return bool(page.messages)


async def _find_given(
    history: _History,
    summaries: PartReader,
    told: GivenContext | None,
    agents: Mapping[str, Agent],
    record: SessionRecord,
) -> "_Given":
    """What the step told of its context; else the context by the rule that steps use."""
    agent = agents.get(record.agent)
    if told is None or told.stop != history.answer:
        given = await _infer_given(history, agent, record)
        if told is not None:
            given.notes.append(_COPIED)
        given.note_prompt("")
        return given
    await history.read_since(told.first)
    given = _Given(told.first, agent, record, recorded=True, model=told.model)
    if told.summary is not None:
        given.summary = await _read_told_summary(summaries, told.summary, given)
    given.note_prompt(told.prompt)
    return given


async def _read_told_summary(reader: PartReader, told: GivenSummary, given: "_Given") -> Summary:
    """The summary that a step told of; its text stands with the first answer that was given with it."""
    text = told.text
    if told.at is not None:
        page = await reader.read(told.at, told.at + 1, backward=False)
        found = page.messages[0] if page is not None and page.messages else None
        keeper = None if found is None else given.decode(found, told.at).given
        kept = None if keeper is None else keeper.summary
        text = kept.text if kept is not None and kept.upto == told.upto else ""
    if not text:
        given.notes.append(_SUMMARY_GONE)
    return Summary(text=text, upto=Head(position=told.upto, last_id=""))


async def _infer_given(history: _History, agent: Agent | None, record: SessionRecord) -> "_Given":
    """The context by the rule that steps use, where the step told nothing of it."""
    policy = ContextPolicy() if agent is None else agent.context
    await history.read_window(policy)
    window = history.as_window()
    has_summary = agent is None or agent.compaction is not None
    summary = find_valid_summary(record.summary, window) if has_summary else None
    given = _Given(find_context_start(policy, window, summary), agent, record, summary=summary)
    given.model = "" if agent is None else name_of_model(agent.model)
    given.notes.append(_UNTOLD if agent is not None else _NO_POLICY)
    if summary is not None:
        given.notes.append(_NEWEST_SUMMARY)
    return given


# -- parts


@dataclass(frozen=True, slots=True)
class Draft:
    """A part with our estimate of its tokens; ``is_known`` False: only the provider's count tells them."""

    part: ContextPart
    is_known: bool = True


@dataclass(slots=True)
class _Given:
    """What is known of the context of one call."""

    first: int
    agent: Agent | None
    record: SessionRecord
    summary: Summary | None = None
    recorded: bool = False
    model: str = ""
    changed: bool | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def instructions(self) -> str | None:
        """Their text as it is now; None where it is not known."""
        if self.record.instructions is not None:
            return self.record.instructions
        if self.agent is None or not isinstance(self.agent.instructions, str):
            return None
        return self.agent.instructions

    def note_prompt(self, digest: str) -> None:
        """Tell what is to be known of instructions and tools; ``digest`` is of those that were given."""
        if self.agent is None:
            self.notes.insert(0, _NO_AGENT)
        elif self.instructions is None:
            self.notes.append(_DYNAMIC)
        elif digest:
            self.changed = self.agent.digest_prompt(self.instructions) != digest
        if self.changed:
            self.notes.append(_CHANGED)

    def draft_parts(self, history: _History) -> list[Draft]:
        """All parts, in the order in which a model gets them."""
        counts = estimate_tokens if self.agent is None else self.agent.context.counts
        return [*self._draft_prompt(), *self._draft_summary(counts), *self._draft_messages(history, counts)]

    def _draft_prompt(self) -> list[Draft]:
        text = self.instructions
        if text is None:
            name = "instructions and tools" if self.agent is None else "instructions"
            drafts = [Draft(ContextPart(kind="instructions", name=name), is_known=False)]
        else:
            said = Message(id="instructions", role="system", content=text)
            drafts = [Draft(_build_part("instructions", said, estimate_tokens))] if text else []
            if self.agent is None:
                drafts.append(Draft(ContextPart(kind="tools", name="tools"), is_known=False))
        tools = () if self.agent is None else self.agent.tools
        return [*drafts, *(Draft(_build_tool_part(each.spec)) for each in tools)]

    def _draft_summary(self, counts: CountTokens) -> list[Draft]:
        if self.summary is None:
            return []
        if not self.summary.text:
            return [Draft(ContextPart(kind="summary", role="user"), is_known=False)]
        return [Draft(_build_part("summary", as_message(self.summary.text, 0), counts))]

    def _draft_messages(self, history: _History, counts: CountTokens) -> list[Draft]:
        first = max(self.first, history.first)
        stored = history.messages[first - history.first :]
        places = {each.id: at for at, each in enumerate(stored, first)}
        messages, repairs = repair_tool_results([self.decode(each, places[each.id]) for each in stored])
        if repairs:
            self.notes.append(
                f"{repairs} results of tool calls were moved, replaced or left out: each call has one result."
            )
        inputs = history.answer - history.count_inputs()
        return [
            *_draft_unread(self.first, first),
            *(
                Draft(
                    _build_part(
                        "input" if places.get(each.id, 0) >= inputs else "message",
                        each,
                        counts,
                        position=places.get(each.id),
                    )
                )
                for each in messages
            ),
        ]

    def decode(self, stored: StoredMessage, position: int) -> Message:
        """The message; of a damaged one its role."""
        try:
            return decode_message(stored)
        except ArchiveCorruptError:
            self.notes.append(f"The message at position {position} is damaged.")
            return Message(id=stored.id, role=_ROLES.get(stored.kind, "foreign"))


def _draft_unread(first: int, read: int) -> list[Draft]:
    """One part for the messages that were given and cannot be read: those before position ``read``."""
    if read <= first:
        return []
    text = f"{read - first} messages that cannot be read now"
    return [Draft(ContextPart(kind="message", text=text, position=first), is_known=False)]


def _build_part(
    kind: str, message: Message, counts: CountTokens, *, position: int | None = None
) -> ContextPart:
    text, cut = shorten_text(describe_message(message), SHOWN_CHARACTERS)
    return ContextPart.model_validate(
        {
            "kind": kind,
            "role": message.role,
            "name": message.name or message.format or "",
            "text": text,
            "cut": cut,
            "position": position,
            "tokens": max(counts(message), 0),
        }
    )


def _build_tool_part(spec: ToolSpec) -> ContextPart:
    told = spec.model_dump(mode="json")
    text, cut = shorten_text(json.dumps(told, indent=2, ensure_ascii=False), SHOWN_CHARACTERS)
    # A definition is JSON, as the arguments of a call are: it is estimated in the same way.
    counted = Message(
        id="tool", role="assistant", tool_calls=(ToolCall(id="x", name=spec.name, arguments=told),)
    )
    return ContextPart(
        kind="tools",
        name=spec.name,
        text=text,
        cut=cut,
        tokens=estimate_tokens(counted),
    )


def describe_message(message: Message) -> str:
    """What a message says as text: its content, and the calls that it asks for by name and arguments."""
    calls = [f"[calls {each.name} {dump_json(each.arguments).decode()}]" for each in message.tool_calls]
    return "\n".join(filter(None, [describe_content(message), *calls]))


# -- tokens


def apportion_tokens(drafts: Sequence[Draft], total: int | None) -> list[ContextPart]:
    """The parts with tokens whose sum is ``total``, what the provider counted; estimates where that is None.

    What the estimates leave of the total belongs to the parts that are not known; where they leave nothing,
    or all parts are known, the estimates are scaled.
    """
    estimates = [draft.part.tokens if draft.is_known else 0 for draft in drafts]
    unknown = [at for at, draft in enumerate(drafts) if not draft.is_known]
    if total is None:
        shares = estimates
    elif unknown and total >= sum(estimates):
        shares = estimates
        for at, rest in zip(
            unknown, split_proportionally(total - sum(estimates), [1] * len(unknown)), strict=True
        ):
            shares[at] = rest
    else:
        shares = split_proportionally(total, estimates)
    told = {"estimated": total is None}
    return [
        draft.part.model_copy(update={"tokens": share, **told})
        for draft, share in zip(drafts, shares, strict=True)
    ]


def split_proportionally(total: int, weights: Sequence[int]) -> list[int]:
    """A total in shares that are proportional to weights and add up to it exactly (largest remainder).

    Weights that are all 0 count as equal.  Of equal remainders the first ones get more.
    """
    if not weights:
        return []
    if not any(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    left = sorted(range(len(weights)), key=lambda at: (-(total * weights[at] % whole), at))
    for at in left[: total - sum(shares)]:
        shares[at] += 1
    return shares


def _fold_oldest(parts: Sequence[ContextPart]) -> tuple[ContextPart, ...]:
    """At most `MOST_PARTS`: the oldest messages beyond are one part with the tokens of all of them."""
    before = [part for part in parts if part.kind not in {"message", "input"}]
    messages = list(parts[len(before) :])
    most = max(MOST_PARTS - len(before), _FEWEST_MESSAGES)
    if len(messages) <= most:
        return tuple(parts)
    folded, shown = messages[: len(messages) - most + 1], messages[len(messages) - most + 1 :]
    one = ContextPart(
        kind="message",
        text=f"{len(folded)} older messages",
        position=next((part.position for part in folded if part.position is not None), None),
        tokens=sum(part.tokens for part in folded),
        estimated=folded[0].estimated,
    )
    return (*before, one, *shown)


def _without_summary(answer: Message) -> Usage | None:
    """What the call itself used, without the calls that made its summary; None where nothing is told."""
    used = answer.usage
    if used is not None and answer.summary_usage is not None:
        used -= answer.summary_usage.used
    return used if used is not None and used.input_tokens else None
