"""What must be true when everything has settled: the books of those who asked against what is stored."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from chaos.clients import Ask, Session
from chaos.ledger import Entry
from helix_temporal.models.handles import SessionUsage

Thread = Sequence[dict[str, Any]]
_MARGIN_NS = 5_000_000_000
"""A worker that was frozen goes on with what it had begun, for some seconds."""


@dataclass
class Findings:
    """Violations, and what a documented limit explains.

    Attributes:
        explained: Not a violation: an answer that was told to be out of the archive and whose hot copy an
            accident took.
    """

    violations: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def note_given(asks: Iterable[Ask], ledger: Iterable[Entry]) -> None:
    """When each answer was given: the token in its text names the model call."""
    given = {entry["token"]: entry["at"] for entry in ledger if entry["kind"] == "paid"}
    for ask in asks:
        token = ask.text.partition("#")[2][:16]
        ask.given_at = given.get(token, ask.told_at)


def check_asks(
    findings: Findings, session: Session, asks: Iterable[Ask], thread: Thread, lost_hot: Sequence[int]
) -> None:
    """Every acknowledged answer is there once, right after its message's turn, and in order."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, message in enumerate(thread):
        places[message["id"]].append(place)
    for message_id, found in places.items():
        if len(found) > 1:
            findings.violations.append(f"{session.id}: message {message_id} stands {len(found)} times")
    told = [ask for ask in asks if ask.told_at]
    for ask in told:
        _check_answer(findings, ask, thread, places, lost_hot)
    standing = [ask for ask in told if ask.id in places and ask.taken_back is False]
    standing.sort(key=lambda ask: ask.told_at)
    for earlier, later in pairwise(standing):
        # Two clients may hear of one turn in either order; a message sent after an answer comes after it.
        if _may_be_lost(earlier, lost_hot):
            continue
        if later.sent_at > earlier.told_at and places[later.id][0] < places[earlier.id][0]:
            findings.violations.append(f"{session.id}: {later.id} stands before {earlier.id}")


def _check_answer(
    findings: Findings, ask: Ask, thread: Thread, places: dict[str, list[int]], lost_hot: Sequence[int]
) -> None:
    at = places.get(ask.id, [])
    if ask.taken_back:
        # What was lost by then was not there to be taken back: a reset, which sends it again, may answer it.
        if at and not _may_be_lost(ask, lost_hot):
            findings.violations.append(f"{ask.id}: taken back by a person, and there again")
        return
    if not at:
        if ask.taken_back is None:
            return
        if _may_be_lost(ask, lost_hot):
            findings.explained.append(f"{ask.id}: told as not archived, then Redis lost it")
        else:
            findings.violations.append(f"{ask.id}: acknowledged and gone (archived={ask.archived})")
        return
    answers = [
        message for message in thread[at[0] :] if message["role"] == "assistant" and not message["calls"]
    ]
    if (not answers or answers[0]["text"] != ask.text) and _may_be_lost(ask, lost_hot):
        # A reset has the server apply its message again.
        findings.explained.append(f"{ask.id}: told as not archived, then Redis lost it, and it was run again")
    elif not answers or answers[0]["text"] != ask.text:
        now = answers[0]["text"][:80] if answers else None
        findings.violations.append(f"{ask.id}: told {ask.text[:80]!r}, the thread has {now!r}")
    elif ask.id not in ask.text:
        findings.violations.append(f"{ask.id}: its answer answers {ask.text[:80]!r}")
    else:
        findings.seen["acknowledged answers that stand"] += 1


def _may_be_lost(ask: Ask, lost_hot: Sequence[int], by: float = math.inf) -> bool:
    """The documented limit: it was told to be out of the archive, and Redis lost it after it was given."""
    return ask.archived is False and any(ask.given_at < when < by for when in lost_hot)


def check_calls_and_results(findings: Findings, session: str, thread: Thread) -> None:
    """Each call of a tool has one result, after it, in order."""
    at = 0
    while at < len(thread):
        calls = thread[at]["calls"]
        results = [message["call_id"] for message in thread[at + 1 : at + 1 + len(calls)]]
        if calls and results != calls:
            findings.violations.append(f"{session}: calls {calls} at {at}, results {results}")
        if thread[at]["role"] == "tool":
            findings.violations.append(f"{session}: a result without a call at {at}")
        at += 1 + len(calls)


def check_effects(
    findings: Findings, sessions: Sequence[Session], ledger: Sequence[Entry], losses: Sequence[int]
) -> None:
    """No effect under two keys, unless somebody ended the turn in between, or a documented loss took it."""
    effects: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for entry in ledger:
        if entry["kind"] == "effect":
            effects[entry["what"]].setdefault(entry["key"], entry["at"])
    for what, keys in effects.items():
        if len(keys) < 2:
            continue
        first, *others = sorted(keys.values())
        session = next((each for each in sessions if what.startswith(f"{each.id}-")), None)
        stops = session.stops if session is not None else [stop for each in sessions for stop in each.stops]
        if not any(first - 60 * 10**9 < stop < others[-1] for stop in (*stops, *losses)):
            findings.violations.append(f"{what}: an effect under {len(keys)} keys")
    findings.seen["effects"] += len(effects)


def check_payments(
    findings: Findings,
    asks: Sequence[Ask],
    ledger: Sequence[Entry],
    frozen: Sequence[tuple[int, int, int]],
    lost_hot: Sequence[int],
) -> None:
    """No model call for a message whose answer had been told before, and was not lost since."""
    told = {ask.id: ask for ask in asks if ask.told_at}
    for entry in ledger:
        if entry["kind"] != "call":
            continue
        findings.seen["model calls"] += 1
        if any(
            pid == entry["pid"] and began < entry["at"] < ended + _MARGIN_NS for pid, began, ended in frozen
        ):
            continue
        for message_id in entry["ids"]:
            ask = told.get(message_id)
            if ask is None or entry["at"] <= ask.told_at or ask.taken_back is not False:
                continue
            if not _may_be_lost(ask, lost_hot, by=entry["at"]):
                findings.violations.append(f"{message_id}: paid again after it was answered")


def check_ends(findings: Findings, asks: Sequence[Ask]) -> None:
    """Everybody was told something."""
    for ask in asks:
        if not ask.told_at and not ask.stopped:
            findings.violations.append(
                f"{ask.id}: no answer after {ask.attempts} attempts; last: {ask.last[:300]}"
            )


def check_sends(findings: Findings, session: Session, thread: Thread) -> None:
    """A message that nobody waited for is there once at most."""
    counts = Counter(message["id"] for message in thread)
    for message_id in session.sent:
        if counts[message_id] > 1:
            findings.violations.append(f"{message_id}: sent once, stands {counts[message_id]} times")
    findings.seen["sent without waiting, in the thread"] += sum(counts[each] > 0 for each in session.sent)


def check_same(findings: Findings, session: str, before: Thread, after: Thread) -> None:
    """What a fresh process reads from the archive alone is what was there."""
    if list(before) != list(after):
        findings.violations.append(f"{session}: {len(before)} messages, {len(after)} from the archive alone")


def check_usage(
    findings: Findings, session: str, thread: Thread, usage: SessionUsage, ledger: Sequence[Entry]
) -> None:
    """What is in the thread is counted once each; what was paid is no less, and no more than was called."""
    answers = sum(message["role"] == "assistant" for message in thread)
    called = sum(entry["kind"] == "call" and entry["session"] == session for entry in ledger)
    if usage.in_thread.calls != answers:
        findings.violations.append(
            f"{session}: usage has {usage.in_thread.calls} answers, the thread {answers}"
        )
    if not answers <= usage.paid.calls <= called:
        findings.violations.append(
            f"{session}: {usage.paid.calls} paid; {answers} stand and {called} were called"
        )
    findings.seen["paid and not in the thread"] += usage.paid.calls - answers


def check_state(findings: Findings, session: str, thread: Thread, noted: object) -> None:
    """The state holds what the newest note in the thread wrote."""
    notes = [
        message["text"].removeprefix("noted ")
        for message in thread
        if message["role"] == "tool" and message["text"].startswith("noted ")
    ]
    expected = notes[-1] if notes else None
    if noted != expected:
        findings.violations.append(
            f"{session}: state has note {noted!r}, the thread's newest is {expected!r}"
        )
