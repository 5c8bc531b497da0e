"""Which part of a thread a model call gets, and how broken parts are mended.  Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.agents._checks import check_count
from helix_temporal.agents._tokens import CountTokens, Decoded, estimate_tokens
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.records import Kind, Record, size_of
from helix_temporal.models.rows import starts_in

MISSING_RESULT: Final = "The result of this call was lost; call the tool again if it is still needed."


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """How much of the thread a model call gets: the newest whole turns within all bounds.

    Attributes:
        max_messages: At most so many messages.
        max_bytes: At most so many packed bytes of them; images and files in the thread count in full.
        max_tokens: At most so many tokens of them, a summary included; None for no such bound.
            Instructions and tools are not counted.
        count_tokens: Tokens of a message; `estimate_tokens` unless another function is given.

    Raises:
        InvalidConfigError: A bound is no positive integer, or ``count_tokens`` is no function.
    """

    max_messages: int = 200
    max_bytes: int = 256 * 1024
    max_tokens: int | None = None
    count_tokens: CountTokens | None = None

    def __post_init__(self) -> None:
        check_count(self.max_messages, "context policy: max_messages")
        check_count(self.max_bytes, "context policy: max_bytes")
        if self.max_tokens is not None:
            check_count(self.max_tokens, "context policy: max_tokens")
        if self.count_tokens is not None and not callable(self.count_tokens):
            raise InvalidConfigError("context policy: count_tokens must be a function of a Message")

    @property
    def counts(self) -> CountTokens:
        """How tokens are counted."""
        return self.count_tokens or estimate_tokens


def choose_context(
    records: Sequence[Record],
    policy: ContextPolicy,
    *,
    complete_before: bool,
    decoded: Decoded | None = None,
    spent: int = 0,
) -> Sequence[Record]:
    """The newest part of ``records`` that a model call gets, always a suffix of them.

    It holds the newest whole turns that fit, and begins inside the last turn, before a step, only
    where that turn alone doesn't fit.  It never begins with a tool result.  The last step is
    included even if it alone passes the bounds.  It is empty only if no place to begin is among
    ``records``: then more of the thread must be read.

    Args:
        records: The newest records of the thread, oldest first, the pending inputs among them.
        policy: The bounds.
        complete_before: Nothing precedes ``records`` in the thread, so that the first one begins a
            turn; otherwise a turn may be cut there.
        decoded: These records, where they are decoded anyway.
        spent: Tokens that are given besides.
    """
    turns = turn_starts(records, complete_before=complete_before)
    first = _first_that_fits(records, policy, decoded or Decoded(records), spent)
    for start in turns:
        if start >= first:
            return records[start:]
    last_turn = turns[-1] if turns else 0
    # Rows of another system that are neither calls nor results may be anything.
    begins = {Kind.USER, Kind.CALLS, Kind.OTHER}
    steps = [at for at in range(last_turn, len(records)) if records[at].kind in begins]
    steps = steps or [at for at in range(last_turn, len(records)) if records[at].kind != Kind.RESULT]
    if not steps:
        return records[len(records) :]
    return records[next((at for at in steps if at >= first), steps[-1]) :]


def turn_starts(records: Sequence[Record], *, complete_before: bool) -> list[int]:
    """Places at which turns begin: where users speak again."""
    starts = starts_in(records)
    if complete_before and records and records[0].kind != Kind.RESULT:
        return [0, *starts]
    return starts


def _first_that_fits(records: Sequence[Record], policy: ContextPolicy, decoded: Decoded, spent: int) -> int:
    """Lowest place from which everything to the end is within the bounds."""
    at, left, tokens = len(records), policy.max_bytes, (policy.max_tokens or 0) - spent
    lowest = max(0, at - policy.max_messages)
    while at > lowest:
        left -= size_of((records[at - 1],))
        if policy.max_tokens is not None:
            tokens -= decoded.tokens(at - 1, policy.counts)
        if left < 0 or (policy.max_tokens is not None and tokens < 0):
            break
        at -= 1
    return at


def repair(messages: Sequence[Message]) -> tuple[tuple[Message, ...], int]:
    """Make every tool call be followed directly by its one result, in call order.

    Results that stand elsewhere before the next answer with calls are moved, missing ones replaced by
    an error result, and those that answer nothing, or answer again, left out.  Other messages keep
    their order.  Ids of calls may repeat, even within one answer.

    Returns:
        The messages, and how many results were moved, replaced or left out: 0 if nothing changed.
    """
    mended: list[Message] = []
    repairs = 0
    at = 0
    while at < len(messages):
        end = _next_calls(messages, at + 1)
        block, count = _mend_block(messages[at:end])
        mended += block
        repairs += count
        at = end
    return tuple(mended), repairs


def _next_calls(messages: Sequence[Message], start: int) -> int:
    return next((at for at in range(start, len(messages)) if _calls(messages[at])), len(messages))


def _calls(message: Message) -> tuple[ToolCall, ...]:
    return message.tool_calls if message.role == "assistant" else ()


def _mend_block(block: Sequence[Message]) -> tuple[list[Message], int]:
    """One answer with calls and all that follows it before the next such answer."""
    calls = _calls(block[0])
    results = [at for at in range(len(block)) if block[at].role == "tool"]
    taken: list[int] = []
    chosen: list[Message] = []
    for place, wanted in enumerate(calls):
        found = next((at for at in results if block[at].tool_call_id == wanted.id and at not in taken), None)
        if found is None:
            chosen.append(_missing(block[0], place, wanted))
        else:
            taken.append(found)
            chosen.append(block[found])
    others = [message for message in block[1:] if message.role != "tool"]
    # The part before the first answer with calls begins with any message, even a stray result.
    first = [block[0]] if block[0].role != "tool" else []
    repairs = len(calls) - len(taken) + len(results) - len(taken) + _moved(taken, block)
    return [*first, *chosen, *others], repairs


def _moved(taken: Sequence[int], block: Sequence[Message]) -> int:
    """How many results stand after a result of a later call, or after a message that is no result."""
    directly = next((at for at in range(1, len(block)) if block[at].role != "tool"), len(block))
    return sum(
        1 for place, at in enumerate(taken) if at >= directly or any(before > at for before in taken[:place])
    )


def _missing(answer: Message, place: int, call: ToolCall) -> Message:
    digest = hashlib.sha256(f"{answer.id}\0{place}".encode()).hexdigest()[:32]
    return Message(
        id=f"missing-{digest}",
        role="tool",
        content=MISSING_RESULT,
        tool_call_id=call.id,
        name=call.name,
        is_error=True,
    )
