"""What models were paid for, by their own books, against the usage store: each call once, and the sums."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from helix_temporal.backends import Backends
from helix_temporal.models.messages import Message
from helix_temporal.models.usage import TokenUsageEntry, UsageRollup
from tests.chaos._agent import amount_of, token_of
from tests.chaos._ledger import Event
from tests.chaos._oracle import Findings


@dataclass(slots=True)
class Tree:
    """A session and all below it.

    Attributes:
        answers: Ids and texts of the answers that stand, by session.
        entries: What the usage store has, by session.
        rollup: Its sums over the whole tree.
    """

    root: str
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: dict[str, list[TokenUsageEntry]] = field(default_factory=dict)
    rollup: UsageRollup | None = None


async def read_tree(backends: Backends, root: str, threads: Mapping[str, Sequence[Message]]) -> Tree:
    """A tree as the usage store has it; ``threads`` are those of its sessions, without what was copied."""
    tree = Tree(root, rollup=await backends.usage.get_rollup(root, include_sub_agents=True))
    for name, messages in threads.items():
        tree.answers[name] = {each.id: each.text for each in messages if each.role == "assistant"}
        entries = await backends.usage.get_entries(name, kinds=["tokens"])
        tree.entries[name] = [
            each for each in entries if isinstance(each, TokenUsageEntry) and each.id.startswith("step/")
        ]
    return tree


def check_paid(tree: Tree, events: Iterable[Event], deaths: Collection[int]) -> Findings:
    """Each answer that stands is counted; nothing is counted twice, or without having been paid for.

    What was paid for is counted, unless its process is one of the ``deaths``: it may have had no time.
    """
    found, who = Findings(), tree.root
    paid = {
        amount_of(each.facts["token"]): each
        for each in events
        if each.kind == "paid" and each.facts["session"] in tree.answers
    }
    counted = Counter[int]()
    for session, entries in tree.entries.items():
        ids = {each.id.removeprefix("step/") for each in entries}
        found.lost += [
            f"{session}: usage of {each} is not counted" for each in tree.answers[session].keys() - ids
        ]
        for entry in entries:
            amount = entry.tokens.prompt
            counted[amount] += 1
            if amount not in paid or paid[amount].facts["session"] != session:
                found.doubled.append(f"{session}: {entry.id} counts what was not paid for")
        found += _own_amounts(session, tree.answers[session], entries)
    found.doubled += [f"{who}: {times} entries count one call" for times in counted.values() if times > 1]
    found.lost += [
        f"{event.facts['session']}: #{event.facts['token']} was paid for and is not counted"
        for amount, event in paid.items()
        if amount not in counted and event.pid not in deaths
    ]
    return found + _sums(tree, counted)


def _own_amounts(session: str, answers: Mapping[str, str], entries: Iterable[TokenUsageEntry]) -> Findings:
    """An answer's entry counts the very call that gave it."""
    found = Findings()
    for entry in entries:
        token = token_of(answers.get(entry.id.removeprefix("step/"), "").encode())
        if token is not None and entry.tokens.prompt != amount_of(token):
            found.wrong_answers.append(f"{session}: {entry.id} counts another call than that of its answer")
    return found


def _sums(tree: Tree, counted: Mapping[int, int]) -> Findings:
    rollup, found = tree.rollup, Findings()
    if rollup is None:
        found.lost.append(f"{tree.root}: nothing is counted")
        return found
    missing = {name for name, entries in tree.entries.items() if entries} - {*rollup.session_ids}
    if missing:
        found.lost.append(f"{tree.root}: its sums are without {sorted(missing)}")
    total = sum(amount * times for amount, times in counted.items())
    if rollup.tokens.prompt != total:
        found.others.append(f"{tree.root}: its sum is {rollup.tokens.prompt}, the entries' {total}")
    if rollup.tokens.completion != sum(counted.values()):
        found.others.append(
            f"{tree.root}: {rollup.tokens.completion} answers are summed up, {sum(counted.values())} counted"
        )
    return found


def unkept(trees: Iterable[Tree]) -> int:
    """How many answers were counted that do not stand: paid for by attempts that came to nothing."""
    return sum(
        each.id.removeprefix("step/") not in tree.answers[session]
        for tree in trees
        for session, entries in tree.entries.items()
        for each in entries
    )
