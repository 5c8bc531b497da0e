"""A conversation as people read it on a terminal: turns, with what belongs to each below it."""

from collections.abc import Iterator

from helix_temporal.cli._output import (
    count_of,
    fold_text,
    format_json,
    format_time,
    print_heading,
    print_text,
)
from helix_temporal.models.amounts import format_cost, format_duration
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.views.conversation import find_kept_attempt
from helix_temporal.views.models import (
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    TurnAttempt,
)
from helix_temporal.views.words import CALL_WORDS, RUN_WORDS, find_reason


def print_turn(turn: ConversationTurn, *, whole: bool = False) -> None:
    """Print a turn.

    Args:
        turn: The turn.
        whole: Arguments and results as they are, not folded to one line each.
    """
    print_heading(describe_turn(turn))
    for attempt in turn.attempts:
        if not attempt.kept:
            print_lost(attempt, indent=2)
    for message in turn.messages:
        _print_message(message, whole=whole)
    print_text("")


def describe_turn(turn: ConversationTurn) -> str:
    """A turn's heading: its number, when it began, and what it used."""
    kept = find_kept_attempt(turn.attempts)
    parts = [f"turn {turn.number}" if turn.number is not None else f"turn at message {turn.start}"]
    if not turn.part_of_turn.begins:
        parts.append("goes on")
    if kept is not None and kept.started_at is not None:
        parts.append(format_time(kept.started_at))
    if kept is not None and kept.status is not RunStatus.COMPLETED:
        parts.append(RUN_WORDS[kept.status])
    elif turn.unfinished:
        parts.append("under way")
    if turn.duration_ms is not None:
        parts.append(format_duration(turn.duration_ms))
    if turn.tokens.total:
        parts.append(f"{turn.tokens.total:,} tokens")
    if turn.cost_usd is not None:
        parts.append(format_cost(turn.cost_usd))
    if turn.discarded_answers:
        parts.append(count_of(turn.discarded_answers, "discarded answer"))
    return " · ".join(parts)


def print_lost(attempt: TurnAttempt, *, indent: int = 0) -> None:
    """Print a run whose messages are not in the thread, with what was asked, where that is known."""
    print_text(_describe_lost(attempt), indent=indent)
    for said in attempt.asked:
        print_text(f"asked: {said}", indent=indent + 2)


def _describe_lost(attempt: TurnAttempt) -> str:
    """A run whose messages are not in the thread: why, and what it used all the same."""
    why = find_reason(attempt)
    tokens = sum(call.tokens.total for call in attempt.model_calls)
    used = f", {tokens:,} tokens" if tokens else ""
    return (
        f"discarded: run {attempt.run_id} of turn {attempt.turn}, {RUN_WORDS[attempt.status]}"
        f"{f' ({why})' if why else ''}, {count_of(attempt.steps, 'step')}{used}"
    )


def _print_message(message: ConversationMessage, *, whole: bool) -> None:
    print_heading(f"  {' · '.join(_facts_of(message))}")
    if message.damage:
        print_text(f"damaged: {message.damage}", indent=4)
    if message.thinking:
        print_text(f"(thinking) {message.thinking if whole else fold_text(message.thinking)}", indent=4)
    if message.text:
        print_text(message.text, indent=4)
    for part in message.parts or ():
        if part.get("type") != "text":
            print_text(f"[{fold_text(format_json(part))}]", indent=4)
    if message.cut:
        print_text(f"… {count_of(message.cut, 'more character')}", indent=4)
    for call in message.calls:
        _print_call(call, whole=whole)
    if message.calls_left_out:
        print_text(f"… {count_of(message.calls_left_out, 'more call')}", indent=4)


def _facts_of(message: ConversationMessage) -> Iterator[str]:
    yield message.role
    yield f"#{message.position}"
    if message.step is not None:
        yield f"step {message.step}"
    if message.tokens is not None and message.tokens.total:
        yield f"{message.tokens.total:,} tokens"
    if message.cut_short_by is not None:
        yield message.cut_short_by
    if message.is_error:
        yield "error"


def _print_call(call: ConversationCall, *, whole: bool) -> None:
    arguments = "" if call.arguments is None else format_json(call.arguments)
    head = f"→ {call.name} {arguments if whole else fold_text(arguments)}".rstrip()
    print_text(head, indent=4)
    facts = [CALL_WORDS[call.status]]
    if call.duration_ms is not None:
        facts.append(format_duration(call.duration_ms))
    if call.attempts > 1:
        facts.append(count_of(call.attempts, "attempt"))
    if call.sub_session_id:
        facts.append(f"session {call.sub_session_id}")
    if call.result_due:
        facts.append("its result goes to the model with the next step")
    result = call.error or ("" if call.result is None else _text_of(call.result))
    print_text(
        f"← {', '.join(facts)}{': ' if result else ''}{result if whole else fold_text(result)}", indent=4
    )


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else format_json(value)
