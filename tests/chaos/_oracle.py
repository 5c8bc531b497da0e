"""What must be true afterwards: pure checks of threads against the books of the askers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import AskResult, AskStatus
from tests.chaos._agent import token_of
from tests.chaos._ledger import Event


@dataclass(slots=True)
class Ask:
    """One message of one asker, and what became of it.

    Attributes:
        asker: Asks one message at a time: its messages have an order.
        result: None while it waits.
        error: What was raised instead of a result.
    """

    session: str
    asker: int
    number: int
    message_id: str
    text: str
    result: AskResult | None = None
    error: str | None = None

    @property
    def acknowledged(self) -> bool:
        """The asker was told that its message is in the thread."""
        return self.result is not None and self.result.in_thread


@dataclass(slots=True)
class Findings:
    """Everything that must not be; each entry says what and where."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    paid_twice: list[str] = field(default_factory=list)
    effects_twice: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )

    def counts(self) -> dict[str, int]:
        """How many of each."""
        return {each.name: len(getattr(self, each.name)) for each in fields(self)}

    @property
    def all(self) -> list[str]:
        """All of them, named."""
        return [f"{each.name}: {what}" for each in fields(self) for what in getattr(self, each.name)]


def check_thread(session: str, asks: Sequence[Ask], messages: Sequence[Message]) -> Findings:
    """One session's thread against the books of those who asked."""
    found = Findings()
    at = {message.id: position for position, message in enumerate(messages)}
    for each, times in Counter(message.id for message in messages).items():
        if times > 1:
            found.doubled.append(f"{session}: message {each} stands {times} times")
    for ask in asks:
        _check_ask(ask, at, messages, found)
    for each in {each.id for each in messages if each.role == "user"} - {ask.message_id for ask in asks}:
        found.others.append(f"{session}: nobody asked {each}")
    for asker in {ask.asker for ask in asks}:
        places = [at[ask.message_id] for ask in asks if ask.asker == asker and ask.message_id in at]
        if places != sorted(places):
            found.reordered.append(f"{session}: asker {asker} at {places}")
    found.malformed += [f"{session}: {what}" for what in malformed(messages)]
    return found


def _check_ask(ask: Ask, at: Mapping[str, int], messages: Sequence[Message], found: Findings) -> None:
    who = f"{ask.session}: {ask.message_id}"
    if ask.result is None:
        found.unresolved.append(f"{who}: {ask.error or 'no result'}")
        return
    if not ask.acknowledged:
        return
    if ask.message_id not in at:
        found.lost.append(f"{who} was acknowledged ({ask.result.status})")
        return
    if messages[at[ask.message_id]].text != ask.text:
        found.wrong_answers.append(f"{who} stands with another text")
    if ask.result.status is not AskStatus.ANSWERED:
        return
    answer = ask.result.answer
    if answer is None or at.get(answer.id) != answer.position:
        found.lost.append(f"{who}: its answer {answer} is not there")
    elif messages[answer.position].text != ask.result.text:
        found.wrong_answers.append(
            f"{who}: told {ask.result.text!r}, stands {messages[answer.position].text!r}"
        )
    elif ask.message_id not in turn_before(messages, answer.position):
        found.wrong_answers.append(f"{who}: the answer at {answer.position} belongs to another turn")


def turn_before(messages: Sequence[Message], position: int) -> set[str]:
    """Ids of the user messages that the answer at ``position`` answers."""
    start = position
    while start > 0 and not _ends_turn(messages[start - 1]):
        start -= 1
    return {message.id for message in messages[start:position] if message.role == "user"}


def _ends_turn(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def malformed(messages: Sequence[Message]) -> list[str]:
    """Each tool call has exactly one result, right after it, in call order; nothing else is a result."""
    found: list[str] = []
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        if message.role == "tool":
            if not open_calls or message.tool_call_id != open_calls.pop(0):
                found.append(f"result at {position} answers no call that waits")
            continue
        if open_calls:
            found.append(f"calls {open_calls} have no result before {position}")
        open_calls = [call.id for call in message.tool_calls]
    if open_calls:
        found.append(f"calls {open_calls} at the end have no result")
    return found


def check_books(
    events: Iterable[Event], threads: Mapping[str, Sequence[Message]], deaths: Mapping[int, int] | None = None
) -> Findings:
    """Model calls and tool effects against the threads.

    ``deaths`` says when (monotonic nanoseconds) a process was killed: what it had appended it had
    appended before.
    """
    events = list(events)
    found = Findings()
    found.paid_twice += _paid_twice(events, threads, deaths or {})
    ids = {session: {message.id for message in messages} for session, messages in threads.items()}
    keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        session = event.facts.get("session")
        if event.kind != "tool" or session not in ids:
            continue
        key = event.facts["key"]
        keys[session, event.facts["what"]].add(key)
        if key.split("/")[-2] not in ids[session]:
            found.effects_twice.append(f"{session}: effect {key} of a step that is not in the thread")
    for (session, what), different in keys.items():
        if len(different) > 1:
            found.effects_twice.append(f"{session}: {what} took effect under {sorted(different)}")
    return found


def _paid_twice(
    events: Sequence[Event], threads: Mapping[str, Sequence[Message]], deaths: Mapping[int, int]
) -> list[str]:
    standing = {token_of(message.text.encode()) for messages in threads.values() for message in messages}
    appended: dict[str, int] = {}
    for event in events:
        if event.kind == "appended":
            # A repeated append tells of the same answer again: the first time counts.
            appended.setdefault(event.facts["token"], event.at)
    calls: defaultdict[tuple[str, ...], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "model":
            calls[event.facts["session"], *event.facts["inputs"]].append(event)
    found = []
    for step, paid in calls.items():
        for first in paid:
            token = first.facts["token"]
            since = appended.get(token) or (deaths.get(first.pid) if token in standing else None)
            late = [each for each in paid if since is not None and each.at > since]
            found += [f"{step}: {token} stood, {each.facts['token']} was paid after it" for each in late]
    return found
