"""What the demo plans, counts, and compares with."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo_report import Checks, say, table

from helix_temporal import Message
from helix_temporal.testing.recorded import RecordedConversation, RecordedStep, RecordedTurn

PLAIN_TURN_EVENTS = 12
PLAIN_TURN_BYTES = 2048
_SHOWN_ROWS = 24
_SHOWN_FLUSHES = 5

Event = Mapping[str, Any]
Row = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Faults:
    """Where the worker is killed, by turn and during what; and before which turn Redis loses everything."""

    kills: Mapping[int, str]
    wipe: int | None


def planned_faults(turns: Sequence[RecordedTurn]) -> Faults:
    """Once in a tool, once in a model call, as far as the conversation has them; a wipe in between."""
    with_tools = [number for number, turn in enumerate(turns, 1) if turn.steps[0].calls]
    kills = {with_tools[min(2, len(with_tools) - 1)]: "tool"} if with_tools else {}
    others = [number for number in range(len(turns), 0, -1) if number not in kills]
    if others:
        kills[others[min(1, len(others) - 1)]] = "model"
    quiet = [number for number in range(2, len(turns) + 1) if number not in kills]
    return Faults(kills, quiet[len(quiet) // 2] if quiet else None)


@dataclass(frozen=True)
class Figures:
    """What one turn cost: sizes in bytes, ``flushes`` what each of them uploaded."""

    turn: int
    model_calls: int
    tools: int
    messages: int
    said: int
    events: int
    history: int
    flushes: tuple[int, ...]
    mark: str


def figures(
    number: int, turn: RecordedTurn, history: tuple[int, int], noted: Sequence[Event], faults: Faults
) -> Figures:
    """The figures of one turn from its recording, the growth of its history and the worker's notes."""
    calls = sum(len(step.calls) for step in turn.steps)
    killed, wiped = number in faults.kills, number == faults.wipe
    return Figures(
        turn=number,
        model_calls=len(turn.steps),
        tools=calls,
        messages=1 + len(turn.steps) + calls,
        said=len(turn.text.encode()) + sum(_size(step) for step in turn.steps),
        events=history[0],
        history=history[1],
        flushes=_flushes(noted),
        mark=" ✗" if killed else " ○" if wiped else "",
    )


def _size(step: RecordedStep) -> int:
    said = [step.text, *step.results, *(json.dumps(call.arguments) for call in step.calls)]
    return sum(len(text.encode()) for text in said)


def _flushes(noted: Sequence[Event]) -> tuple[int, ...]:
    """Bytes of each flush: its segments, if any, and the manifest that ends it."""
    sizes, pending = [], 0
    for event in noted:
        if event["what"] == "put" and "/payload/" not in event["key"]:
            pending += event["bytes"]
            if event["key"].endswith("/manifest"):
                sizes.append(pending)
                pending = 0
    return tuple(sizes)


def differences(conversation: RecordedConversation, found: Sequence[Message]) -> tuple[int, int, bool]:
    """Messages that are missing, messages that are there too often, and whether the order is right."""
    expected: list[Row] = [(each.role, each.text, each.tool_call_ids) for each in conversation.expected()]
    there: list[Row] = [(each.role, each.text, _call_ids(each)) for each in found]
    wanted, have = Counter(expected), Counter(there)
    doubled_ids = len(found) - len({each.id for each in found})
    return (wanted - have).total(), max((have - wanted).total(), doubled_ids), there == expected


def _call_ids(message: Message) -> tuple[str, ...]:
    if message.role == "tool":
        return (message.tool_call_id or "",)
    return tuple(call.id for call in message.tool_calls)


def show(all_figures: Sequence[Figures]) -> None:
    """The table."""
    columns = (
        "turn  ", "model\ncalls", "tool\ncalls", "messages", "bytes\nsaid", "history\nevents",
        "history\nbytes", "flushes", "bytes uploaded\nby each flush",
    )  # fmt: skip
    rows = [_row(each) for each in all_figures]
    sums = [sum(row[at] for row in rows if isinstance(row[at], int)) for at in range(1, 8)]  # type: ignore[misc]
    if len(rows) > _SHOWN_ROWS:
        rows[_SHOWN_ROWS // 2 : -_SHOWN_ROWS // 2] = [["…"] * len(columns)]
    uploaded = sum(sum(each.flushes) for each in all_figures)
    table(columns, [*rows, ["sum  ", *sums, f"{uploaded:,}"]])
    say("  ✗ the worker was killed in this turn   ○ Redis had lost everything before it\n")


def _row(each: Figures) -> list[object]:
    sizes = [f"{size:,}" for size in each.flushes]
    if len(sizes) > _SHOWN_FLUSHES:
        sizes[2:-2] = ["…"]
    return [
        f"{each.turn}{each.mark or '  '}",
        each.model_calls,
        each.tools,
        each.messages,
        each.said,
        each.events,
        each.history,
        len(each.flushes),
        " ".join(sizes),
    ]


def check_history(checks: Checks, all_figures: Sequence[Figures]) -> None:
    """A plain turn (one model call, nothing going wrong) costs a small constant; the first one opens."""
    plain = [each for each in all_figures[1:] if each.model_calls == 1 and not each.mark]
    if not plain:
        say("    no turn is plain in this conversation: its share of history is not checked")
        return
    checks.at_most("history events of a plain turn", max(each.events for each in plain), PLAIN_TURN_EVENTS)
    above = max(each.history - 2 * each.said for each in plain)
    checks.at_most("history bytes of it, above twice its texts", above, PLAIN_TURN_BYTES)


def check_payments(checks: Checks, events: Sequence[Event], kills: Mapping[int, str]) -> None:
    """An answer that stands is never paid again; a call that died without an answer is made again."""
    paid = Counter(event["step"] for event in events if event["what"] == "answer")
    begun = sum(1 for event in events if event["what"] == "model")
    checks.equal("model calls paid twice", paid.total() - len(paid), 0)
    died = list(kills.values()).count("model")
    checks.equal("model calls that died with their worker", begun - paid.total(), died, "made again")
    tools = Counter(event["key"] for event in events if event["what"] == "result")
    checks.equal("tool calls that finished twice", tools.total() - len(tools), 0)
