"""What a model call is given: a window of the thread, a summary of what is older, the instructions."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.activities._runtime import CODE_ERRORS, application_code, is_cancellation
from helix_temporal.activities.step_facts import ModelStep, new_id, step_number
from helix_temporal.activities.usage import UsageLog, name_of_model
from helix_temporal.agents import (
    Agent,
    Compaction,
    ContextPolicy,
    InstructionsContext,
    call_model,
    repair_tool_results,
)
from helix_temporal.agents.context import (
    Decoded,
    as_message,
    choose_context,
    cut_text,
    summary_question,
    transcript_chunks,
    turn_starts,
)
from helix_temporal.errors import InvalidMessageError
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.base import only_set
from helix_temporal.models.messages import (
    Finish,
    GivenContext,
    GivenSummary,
    Message,
    SummaryUsage,
    Usage,
    decode_message,
    encode_message,
)
from helix_temporal.models.newest import Newest
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.session.record import Summary
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.usage import sum_costs
from helix_temporal.telemetry import metrics
from helix_temporal.telemetry.spans import Stopwatch

READ_BYTES: Final = 512 * 1024
"""So much of a thread is read for one summary, the newest part of what is to be summed up."""
MODEL_NAME: Final = 128
"""Characters of a model's name that an answer tells."""
_PAGE: Final = 200
_REMEMBERED: Final = 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Window:
    """The newest part of a thread, and where it stands.

    Attributes:
        first: Position of the first message.
        head: Where the thread stood before the pending inputs, which are the last messages.
    """

    messages: Sequence[StoredMessage]
    decoded: Decoded
    first: int
    head: Head

    def messages_since(self, position: int) -> Sequence[StoredMessage]:
        """The messages from a position on, as far as they are here."""
        return self.messages[max(position - self.first, 0) :]

    def decode_since(self, position: int) -> list[Message]:
        """The same, decoded."""
        start = max(position - self.first, 0)
        return [self.decoded[at] for at in range(start, len(self.messages))]

    def reaches(self, position: int) -> bool:
        """Whether everything from there on is here."""
        return self.first <= position


@dataclass(frozen=True, slots=True)
class Found:
    """A summary to give, where there is one; ``used`` by the calls that made it, or tried to, now."""

    summary: Summary | None = None
    used: SummaryUsage | None = None

    @property
    def message(self) -> Message | None:
        """The summary as the model gets it."""
        if self.summary is None:
            return None
        return as_message(self.summary.text, self.summary.upto.position)


class Summaries:
    """Makes summaries, and remembers those whose step has still to be written: an attempt that fails
    after it does not pay for it twice in this process.

    Args:
        used: Where what they used is recorded, at once: the step may come to nothing.
    """

    def __init__(self, threads: ThreadStore, used: UsageLog | None = None) -> None:
        self._threads, self._used = threads, used or UsageLog()
        self._made = Newest[tuple[str, Head, Head], Found](_REMEMBERED)

    async def find_or_make(self, step: ModelStep, window: Window) -> Found:
        """The summary for a step: the stored one, or a new one if that is due; never an error."""
        compaction = step.agent.compaction
        if compaction is None:
            return Found()
        present = find_valid_summary(step.record.summary, window)
        if step.request.inputs[0].call is not None:
            return Found(present)  # within a turn: all of it is in the context
        since = EMPTY if present is None else present.upto
        upto = find_summary_end(step.agent, compaction, window, present)
        if upto is None or upto.position <= since.position:
            return Found(present)
        made = self._made.get((step.thread_id, since, upto))
        if made is not None:
            return made
        watch = Stopwatch()
        found = await self._make_summary(step, compaction, present, upto)
        if found.used is not None:
            step.note_summary(found.used, watch)
            number = step_number(step.request, step.record)
            await self._used.record_summary(step.agent, step.request, found.used, number)
        if found.summary is not present:
            self._made[step.thread_id, since, upto] = found
        return found

    async def _make_summary(
        self, step: ModelStep, compaction: Compaction, present: Summary | None, upto: Head
    ) -> Found:
        """A new summary, or the present one if that fails, whatever the reason."""
        thread_id, epoch = step.thread_id, step.request.epoch
        paid: list[ModelResponse] = []
        text = None if present is None else present.text
        start = 0 if present is None else present.upto.position
        try:
            async with asyncio.timeout(compaction.timeout):
                messages, left_out = await self._read_newest_messages(thread_id, epoch, start, upto.position)
                for at, said in enumerate(
                    transcript_chunks([decode_message(message) for message in messages])
                ):
                    asked = summary_question(text, said, left_out=0 if at else left_out)
                    step_key = f"{thread_id}/{step.request.epoch}/summary/{upto.position}/{at}"
                    response = await _request_summary(step, compaction, asked, step_key)
                    paid.append(response)
                    text = _text_of(response, compaction)
        except CODE_ERRORS as error:  # whatever it is, the turn does not depend on it
            if is_cancellation(error):
                raise
            _log.warning("thread %r: no summary up to %d: %s", thread_id, upto.position, type(error).__name__)
            metrics.SUMMARY_FAILURES.add(agent=step.agent.name)
            return Found(present, _sum_usage(paid))
        if text is None:
            return Found(present)
        return Found(Summary(text=text, upto=upto), _sum_usage(paid))

    async def _read_newest_messages(
        self, thread_id: str, epoch: int, start: int, stop: int
    ) -> tuple[list[StoredMessage], int]:
        """The newest part of a range, oldest first, and how many messages before it are left out."""
        messages: list[StoredMessage] = []
        at, left = stop, READ_BYTES
        while at > start and left > 0:
            page = await self._threads.read(
                ReadPage(
                    thread_id,
                    start,
                    at,
                    limit=_PAGE,
                    max_bytes=left,
                    backward=True,
                    committed_only=False,
                    whole=False,
                    epoch=epoch,
                )
            )
            if not page.messages:
                break
            messages = [*page.messages, *messages]
            at, left = page.first, left - sum(len(message.body) for message in page.messages)
        return messages, at - start


async def _request_summary(
    step: ModelStep, compaction: Compaction, asked: str, step_key: str
) -> ModelResponse:
    """One call for a summary."""
    return await call_model(
        compaction.model or step.agent.model,
        ModelRequest(
            agent=step.agent.name,
            session_id=step.request.session_id,
            thread_id=step.thread_id,
            messages=(Message(id="summarise", role="user", content=asked),),
            instructions=compaction.prompt,
            metadata=dict(step.record.metadata),
            step_key=step_key,
        ),
    )


def _text_of(response: ModelResponse, compaction: Compaction) -> str:
    """The summary that a model gave.

    Raises:
        InvalidMessageError: It gave none.
    """
    text = Message(id="summary", role="assistant", content=response.content).text.strip()
    if not text or response.finish in {Finish.CONTENT_FILTER, Finish.REFUSAL}:
        raise InvalidMessageError("the model gave no summary")
    return cut_text(text, compaction.max_bytes)


def _sum_usage(paid: Sequence[ModelResponse]) -> SummaryUsage | None:
    """What these calls used together, under a name of its own; None for nothing."""
    total = sum((each.usage or Usage() for each in paid), start=Usage())
    cost = sum_costs(each.cost_usd for each in paid)
    if cost is None and total == Usage():
        return None
    return SummaryUsage(id=new_id(), used=total, **only_set(cost_usd=cost))


def find_valid_summary(summary: Summary | None, window: Window) -> Summary | None:
    """The summary, unless the thread is not the one that it was made of."""
    if summary is None or summary.upto.position > window.head.position:
        return None
    at = summary.upto.position - 1 - window.first
    if at >= 0 and window.messages[at].id != summary.upto.last_id:
        return None
    return summary


def find_summary_end(
    agent: Agent, compaction: Compaction, window: Window, present: Summary | None
) -> Head | None:
    """Up to where a new summary goes; None if none is due.

    It leaves the newest turns as they are, or those of them that the context's bounds allow.
    """
    since = 0 if present is None else present.upto.position
    messages = window.messages_since(since)
    whole = window.reaches(since)
    spent = _count_summary_tokens(agent.context, present)
    context = choose_context(
        messages,
        agent.context,
        complete_before=whole,
        decoded=window.decoded.take_last(len(messages)),
        spent=spent,
    )
    begins = window.first + len(window.messages) - len(context)
    falls_out = not whole or begins > since
    if not falls_out and not _exceeds_threshold(agent, compaction, window, since):
        return None
    kept = window.messages[: window.head.position - window.first]
    starts = turn_starts(kept, complete_before=window.first == 0)
    place = window.first + (starts[-compaction.keep_turns] if len(starts) >= compaction.keep_turns else 0)
    # What falls out has to be in the summary, however few turns stay then.
    upto = min(max(place, begins) if falls_out else place, window.head.position)
    if upto <= window.first:
        return None
    return Head(position=upto, last_id=window.messages[upto - window.first - 1].id)


def _exceeds_threshold(agent: Agent, compaction: Compaction, window: Window, since: int) -> bool:
    said = window.head.position - since
    if compaction.at_messages is not None and said >= compaction.at_messages:
        return True
    if compaction.at_tokens is None:
        return False
    places = range(max(since - window.first, 0), window.head.position - window.first)
    return sum(window.decoded.count_tokens(at, agent.context.counts) for at in places) >= compaction.at_tokens


def _count_summary_tokens(policy: ContextPolicy, present: Summary | None) -> int:
    if present is None or policy.max_tokens is None:
        return 0
    return policy.counts(as_message(present.text, 0))


def find_context_start(policy: ContextPolicy, window: Window, summary: Summary | None) -> int:
    """Position of the first message that a model gets besides the summary; the end if it gets none."""
    since = 0 if summary is None else summary.upto.position
    messages = window.messages_since(since)
    context = choose_context(
        messages,
        policy,
        complete_before=window.reaches(since),
        decoded=window.decoded.take_last(len(messages)),
        spent=_count_summary_tokens(policy, summary),
    )
    return window.first + len(window.messages) - len(context)


@dataclass(frozen=True, slots=True)
class Given:
    """The context of one model call.

    Attributes:
        told: What the answer tells of it.
        repairs: Results of tool calls that were moved, replaced or left out.
        summary: Of the turns that are not among the messages, as the record has it after the step; it is
            their first.
        used: By the calls that made the summary now, or tried to.
    """

    messages: tuple[Message, ...]
    instructions: str
    told: GivenContext
    repairs: int = 0
    summary: Summary | None = None
    used: SummaryUsage | None = None


async def given_to_model(
    step: ModelStep, view: StepView, inputs: Sequence[Message], summaries: Summaries
) -> Given:
    """The context that the agent's policy allows, with a summary of what it leaves out if that is wanted.

    Raises:
        HelixError: What the instructions raise.
    """
    stored = [*view.before, *(encode_message(message) for message in inputs)]
    head = step.request.head
    window = Window(stored, Decoded(stored), head.position - len(view.before), head)
    instructions = await _resolve_instructions(step)
    with application_code(f"context of agent {step.agent.name!r}"):
        found = await summaries.find_or_make(step, window)
        first = find_context_start(step.agent.context, window, found.summary)
        messages, repairs = repair_tool_results(window.decode_since(first))
    if found.message is not None:
        messages = (found.message, *messages)
    summary, stop = found.summary, window.first + len(stored)
    told = GivenContext(
        first=first,
        stop=stop,
        summary=None if summary is None else _refer_to_summary(summary),
        prompt=step.agent.digest_prompt(instructions),
        model=name_of_model(step.agent.model)[:MODEL_NAME],
    )
    if summary is not None and summary.kept is None:
        summary = summary.model_copy(update={"kept": stop})
    return Given(messages, instructions, told, repairs, summary, found.used)


def _refer_to_summary(summary: Summary) -> GivenSummary:
    """The summary as an answer tells it: its text stands once in the thread."""
    if summary.kept is None:
        return GivenSummary(upto=summary.upto.position, text=summary.text)
    return GivenSummary(upto=summary.upto.position, at=summary.kept)


async def _resolve_instructions(step: ModelStep) -> str:
    if step.record.instructions is not None:
        return step.record.instructions
    who = InstructionsContext(
        agent=step.agent.name,
        session_id=step.request.session_id,
        thread_id=step.thread_id,
        metadata=dict(step.record.metadata),
    )
    with application_code(f"instructions of agent {step.agent.name!r}"):
        return await step.agent.instructions_for(who)
