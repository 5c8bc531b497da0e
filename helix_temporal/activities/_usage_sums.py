"""What a session used: by its thread, and by what was recorded of its own model calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from helix_temporal.models.handles import ModelCalls
from helix_temporal.models.messages import Usage, from_record
from helix_temporal.models.records import Kind
from helix_temporal.models.usage import TokenUsageEntry, UsageEntry
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore

_AT_ONCE: Final = 1000
_PAGE_BYTES: Final = 4 * 1024 * 1024
_OWN: Final = frozenset({Kind.ANSWER, Kind.CALLS})
_STEP, _SUMMARY = "step/", "summary/"


@dataclass(slots=True)
class ThreadUsage:
    """Sums over the messages of finished turns.

    Attributes:
        tokens: Of all messages; ``own_tokens`` of answers alone.
        answers: All of them; ``calls`` are those that told what they used.
    """

    tokens: Usage = field(default_factory=Usage)
    own_tokens: Usage = field(default_factory=Usage)
    answers: int = 0
    calls: int = 0


async def thread_usage(threads: ThreadStore, facts: ThreadFacts) -> ThreadUsage:
    """What the messages say that are in the thread now: not what was cut or taken back."""
    found = ThreadUsage()
    start = 0
    while start < facts.committed:
        page = await threads.read(
            ReadPage(facts.thread_id, start, facts.committed, _AT_ONCE, _PAGE_BYTES, whole=False)
        )
        if not page.records:
            break
        for record in page.records:
            own, used = record.kind in _OWN, from_record(record).usage
            found.answers += own
            if used is None:
                continue
            found.tokens += used
            if own:
                found.calls += 1
                found.own_tokens += used
        start = page.first + len(page.records)
    return found


def paid_calls(entries: Iterable[UsageEntry]) -> ModelCalls:
    """Pure: model calls of a session's steps, and the tokens of their summaries with them."""
    calls, tokens = 0, Usage()
    for each in entries:
        if isinstance(each, TokenUsageEntry) and each.id.startswith((_STEP, _SUMMARY)):
            calls += each.id.startswith(_STEP)
            tokens += Usage(
                input_tokens=each.tokens.prompt,
                output_tokens=each.tokens.completion,
                reasoning_tokens=each.tokens.reasoning,
                cached_read_tokens=each.tokens.cached,
                cached_write_tokens=each.tokens.cache_write,
            )
    return ModelCalls(calls=calls, tokens=tokens)
