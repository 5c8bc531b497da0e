"""Sub-agents under workers that die: what they gave their callers, and that none is left."""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from helix_temporal.backends import Backends
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import Message
from helix_temporal.models.waiting import child_session_id
from helix_temporal.worker import connect
from tests.chaos._agent import HELPERS
from tests.chaos._answers import Answerers, check_given
from tests.chaos._kills import KillCampaign, read_all
from tests.chaos._ledger import Event, Ledger
from tests.chaos._oracle import Findings, check_books, malformed
from tests.chaos._paid import Tree, check_paid, read_tree, unkept
from tests.chaos._people import People
from tests.chaos._report import Report


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a sub-agent that stands in its caller's thread, with its result."""

    session: str
    message_id: str
    task: str
    result: Message


def called(parent: str, messages: Sequence[Message]) -> Iterator[Called]:
    """All calls of sub-agents in a thread."""
    for at, message in enumerate(messages):
        for number, call in enumerate(message.tool_calls):
            thread = HELPERS.get(call.name)
            if thread is not None:
                key = f"{message.id}.{number}"
                session = child_session_id(parent, call.name, thread, key)
                task = str(call.arguments["task"])
                yield Called(session, key, task, messages[at + 1 + number])


def check_call(call: Called, messages: Sequence[Message]) -> list[str]:
    """The sub-agent's thread has the task once, and its answer is the caller's result."""
    at = [place for place, message in enumerate(messages) if message.id == call.message_id]
    if len(at) != 1:
        return [f"{call.session}: the task {call.message_id} stands {len(at)} times"]
    answers = [each for each in messages[at[0] :] if each.role == "assistant" and not each.tool_calls]
    if not answers or answers[0].text != call.result.text or call.result.is_error:
        return [f"{call.session}: {call.message_id} was told {call.result.text[:80]!r}"]
    return []


def _own(messages: Sequence[Message], tasks: set[str]) -> Sequence[Message]:
    """A sub-agent's thread from its first task on: a fork begins with copies of its parent's calls."""
    first = next(at for at, each in enumerate(messages) if each.role == "user" and each.id in tasks)
    return messages[first:]


class ChildKillCampaign(KillCampaign):
    """The same with sub-agents of all kinds, some of which ask others, or people."""

    name = "kills with sub-agents"
    _manner: Mapping[str, Any] = MappingProxyType(
        {"texts": ("hello", "agents=1", "agents=4", "deep agents=2", "asking agents=1", "asking agents=3")}
    )

    def _along(self, client: Client, people: People) -> list[Coroutine[Any, Any, None]]:
        self._answerers, self._trees = Answerers(people.sessions, seed=self._seed), list[Tree]()
        return [self._answerers.keep_answering(name, 0) for name in self.session_ids]

    async def _judge(self, people: People, seconds: float) -> Report:
        await self._answerers.stop()
        return await super()._judge(people, seconds)

    async def _further(self, threads: Mapping[str, Sequence[Message]]) -> Findings:
        below, calls = await self._below(threads)
        events = list(Ledger(self.books).read())
        findings = await self._paid(threads, below, calls, events) if self._keeps_usage else Findings()
        findings += self._excused(check_books(events, below, self._deaths), below)
        findings += check_given(self._answerers.given, {**threads, **below}, events)
        for each in calls:
            findings.lost += check_call(each, below[each.session])
        for name, messages in below.items():
            findings.malformed += [f"{name}: {what}" for what in malformed(messages)]
        findings.others += await self._left(list(below))
        if not calls:
            findings.others.append("no sub-agent was called")
        return findings

    async def _below(
        self, threads: Mapping[str, Sequence[Message]]
    ) -> tuple[dict[str, list[Message]], list[Called]]:
        """Threads of all sub-agents, level by level, and the calls that they served."""
        found: dict[str, list[Message]] = {}
        calls: list[Called] = []
        level = [each for name, messages in threads.items() for each in called(name, messages)]
        while level:
            calls += level
            read = await read_all(self._settings, sorted({each.session for each in level} - set(found)))
            found |= read
            tasks = {each.message_id for each in level}
            level = [each for name, messages in read.items() for each in called(name, _own(messages, tasks))]
        return found, calls

    @property
    def _keeps_usage(self) -> bool:
        """Whether the store of what was used outlasts the campaign."""
        return True

    async def _paid(
        self,
        threads: Mapping[str, Sequence[Message]],
        below: Mapping[str, Sequence[Message]],
        calls: Sequence[Called],
        events: Sequence[Event],
    ) -> Findings:
        """What models were paid for, in each session and all below it, is what their sums say."""
        tasks, findings = {each.message_id for each in calls}, Findings()
        backends = Backends(self._settings)
        try:
            for root, messages in threads.items():
                mine = {
                    name: _own(found, tasks) for name, found in below.items() if name.startswith(f"{root}>")
                }
                self._trees.append(await read_tree(backends, root, {root: messages, **mine}))
                findings += check_paid(self._trees[-1], events, self._deaths)
        finally:
            await backends.close()
        return findings

    def _counts(self) -> dict[str, Any]:
        trees = self._trees
        return {
            "sub_agents": sum(len(each.answers) - 1 for each in trees),
            "answers_counted": sum(len(entries) for each in trees for entries in each.entries.values()),
            "of_attempts_that_came_to_nothing": unkept(trees),
        }

    async def _left(self, names: Sequence[str]) -> list[str]:
        """Sub-agents that still run, or whose threads were not dropped."""
        client, _ = await connect(self._settings)
        backends, found = Backends(self._settings), []
        try:
            for name in names:
                try:
                    described = await client.get_workflow_handle(workflow_id(name)).describe()
                except RPCError as error:
                    found.append(f"{name}: {error}")
                    continue
                if described.status is not WorkflowExecutionStatus.COMPLETED:
                    found.append(f"{name}: {described.status}")
                if await backends.hot.read_header(name) is not None:
                    found.append(f"{name}: still hot after its end")
        finally:
            await backends.close()
        return found
