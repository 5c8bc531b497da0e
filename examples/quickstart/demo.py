"""The main job on real servers, start to end: ``make demo``, or ``make demo CONVERSATION=path``.

Plays a recorded conversation through a session, kills the worker in the middle of two turns, wipes Redis
between two others, closes, shows that Redis is empty and S3 holds the thread, goes on from there, forks,
and counts.  Exits with 1 if a number is wrong.

The conversation is a file in OpenAI's chat format, JSON or JSON lines.
"""

import argparse
import asyncio
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from demo_figures import Figures, check_history, check_payments, differences, figures, planned_faults, show
from demo_process import Worker, WorkerFailedError
from demo_report import WIDTH, Checks, fit, heading, paint, say
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.service import RPCError

from helix_temporal import (
    AskResult,
    Backends,
    HelixError,
    HelixPlugin,
    Message,
    SessionClient,
    Settings,
    start_stack,
    workflow_id,
)
from helix_temporal.blobs import BlobInfo
from helix_temporal.devstack import DevStackError, Stack
from helix_temporal.testing.recorded import RecordedConversation, read_conversation
from helix_temporal.testing.tables import own_tables

CONVERSATION = Path(__file__).resolve().with_name("conversation.json")
SESSION, FORK = "customer-42", "customer-42-fork"


class Demo:
    """One run on one set of servers."""

    def __init__(
        self, conversation: RecordedConversation, settings: Settings, worker: Worker, client: Client
    ) -> None:
        self.conversation, self.settings, self.worker, self.client = conversation, settings, worker, client
        self.sessions = SessionClient(client, task_queue=settings.task_queue)
        self.faults = planned_faults(conversation.turns)
        self.figures: list[Figures] = []
        self.checks = Checks()

    async def run(self) -> list[str]:
        """The whole story; names of the numbers that were wrong."""
        heading("2  The conversation: workers are killed, Redis is wiped")
        await self.play()
        heading("3  The session ends: Redis is empty, S3 holds the thread")
        await self.close(SESSION)
        await self.show_cold()
        found = await self.compare()
        heading("4  One more question, from the cold tier")
        await self.go_on(found)
        await self.show_state()
        heading("5  A fork")
        await self.fork(found)
        heading("6  What it cost")
        await self.count()
        return self.checks.wrong

    # -- the conversation

    async def play(self) -> None:
        """Every turn by one ask."""
        for number, turn in enumerate(self.conversation.turns, 1):
            since, before, began = len(self.worker.events()), await self._history(), time.monotonic()
            if number == self.faults.wipe:
                await self._wipe()
            moment = self.faults.kills.get(number)
            if moment is not None:
                self.worker.hold(moment)
            ask = asyncio.create_task(self._ask(SESSION, turn.text))
            if moment is not None:
                await self._kill(moment, since)
            answer = await ask
            half = (WIDTH - 20) // 2
            took = time.monotonic() - began
            say(f"  {number:>3}  {fit(turn.text, half)} → {fit(_text(answer), half)} {took:>5.1f} s")
            await asyncio.sleep(0.1)  # the answer is here before its last event is written
            grown = await self._history()
            growth = (grown[0] - before[0], grown[1] - before[1])
            noted = self.worker.events()[since:]
            self.figures.append(figures(number, turn, growth, noted, self.faults))

    async def _ask(self, session_id: str, text: str) -> AskResult:
        return await self.sessions.ask(session_id, text, agent="support", timeout=120)

    async def _kill(self, moment: str, since: int) -> None:
        event = await self.worker.wait_for(moment, since)
        self.worker.kill()
        doing = f"while the tool {event['name']} ran" if moment == "tool" else "while the model was answering"
        say("       " + paint(f"✗ worker {event['pid']} killed (SIGKILL) {doing}", "31"))
        pid = await self.worker.start()
        say("       " + paint(f"✓ worker {pid} takes over", "32"))

    async def _wipe(self) -> None:
        async with self._redis() as redis:
            keys = await self._keys(redis)
            await redis.delete(*keys)
        say("       " + paint(f"○ Redis loses everything it held ({len(keys)} keys)", "33"))

    async def _history(self) -> tuple[int, int]:
        """Events and bytes of the session's history."""
        try:
            found = await self.client.get_workflow_handle(workflow_id(SESSION)).describe()
        except RPCError:
            return 0, 0  # not started yet
        info = found.raw_description.workflow_execution_info
        return info.history_length, info.history_size_bytes

    # -- cold and back

    async def close(self, session_id: str) -> None:
        """End the session; says what its clean-up did."""
        session = self.sessions.session(session_id)
        await session.close()
        result = await session.result()
        receipts = ", ".join(f"{each.name}: {each.detail or 'done'}" for each in result.receipts)
        say(f"    session {session_id} ended: {result.exit_reason} ({receipts})")
        self.checks.equal("every clean-up step succeeded", all(each.ok for each in result.receipts), True)

    def _redis(self) -> "Redis":
        assert self.settings.redis_url is not None
        return Redis.from_url(self.settings.redis_url)

    async def _keys(self, redis: "Redis") -> list[bytes]:
        return [key async for key in redis.scan_iter(match=f"{self.settings.redis_prefix}*")]

    async def _cold(self, *thread_ids: str) -> tuple[int, list[BlobInfo]]:
        """Keys in Redis that would stay, and objects in S3 of these threads.

        What was shown live is still there, and goes by itself.
        """
        async with self._redis() as redis:
            keys = [key for key in await self._keys(redis) if await redis.ttl(key) < 0]
        backends = Backends(self.settings)
        assert backends.blobs is not None
        assert backends.tiered is not None
        try:
            prefixes = [backends.tiered.layout.thread_prefix(thread_id) for thread_id in thread_ids]
            return len(keys), [info for prefix in prefixes async for info in backends.blobs.list(prefix)]
        finally:
            await backends.close()

    async def show_cold(self) -> None:
        """Redis holds nothing, S3 everything."""
        keys, objects = await self._cold(SESSION)
        self.checks.equal("Redis keys that would stay", keys, 0)
        manifests = sum(1 for each in objects if each.key.endswith("/manifest"))
        self.checks.equal("S3 manifests of the thread", manifests, 1)
        for each in objects:
            say(f"      {fit(each.key, WIDTH - 24)} {each.size:>8,} bytes")

    async def show_state(self) -> None:
        """PostgreSQL has a run for each turn, and stands where the thread stands."""
        backends = Backends(self.settings)
        try:
            state = await backends.sessions.load_state(SESSION)
            runs = await backends.sessions.list_runs(SESSION)
            facts = await backends.threads.read_facts(SESSION)
        finally:
            await backends.close()
        turns = len(self.conversation.turns) + 1
        self.checks.equal("runs in PostgreSQL, one a turn", runs.total, turns)
        self.checks.equal("state and thread agree", state is not None and state.head == facts.head, True)

    async def compare(self) -> list[Message]:
        """The thread as anybody reads it, against the recording."""
        found = await self.sessions.session(SESSION).get_messages()
        losses, duplicates, in_order = differences(self.conversation, found)
        self.checks.equal("messages", len(found), len(self.conversation.expected()), "as recorded")
        self.checks.equal("losses", losses, 0)
        self.checks.equal("duplicates", duplicates, 0)
        self.checks.equal("in order, each tool call followed by its result", in_order, True)
        return found

    async def go_on(self, found: Sequence[Message]) -> None:
        """The thread comes back from S3 for another turn."""
        answer = await self._ask(SESSION, "Do you still remember all this?")
        say(f"    {_text(answer)}")
        now = await self.sessions.session(SESSION).get_messages()
        self.checks.equal("messages", len(now), len(found) + 2)
        self.checks.equal("what was there is unchanged", now[: len(found)] == list(found), True)
        await self.close(SESSION)

    async def fork(self, found: Sequence[Message]) -> None:
        """A copy of the first half goes its own way."""
        half = max(len(self.conversation.turns) // 2, 1)
        at = sum(each.messages for each in self.figures[:half])
        before = await self.sessions.session(SESSION).get_messages()
        await self.sessions.session(SESSION).fork(FORK, at=at)
        await self._ask(FORK, "And what if not?")
        copy = await self.sessions.session(FORK).get_messages()
        self.checks.equal(f"messages of a fork after turn {half}, and one turn", len(copy), at + 2)
        self.checks.equal("it begins as the original", copy[:at] == list(found[:at]), True)
        unchanged = await self.sessions.session(SESSION).get_messages() == before
        self.checks.equal("the original is unchanged", unchanged, True)
        await self.close(FORK)

    async def count(self) -> None:
        """The table, what was paid, what is left."""
        show(self.figures)
        check_payments(self.checks, self.worker.events(), self.faults.kills)
        check_history(self.checks, self.figures)
        keys, objects = await self._cold(SESSION, FORK)
        self.checks.equal("Redis keys that would stay", keys, 0)
        size = sum(each.size for each in objects)
        say(f"    S3 holds both threads in {len(objects)} objects of {size:,} bytes")
        self.checks.equal("exit status of the last worker after SIGTERM", await self.worker.stop(), 0)


def _text(answer: AskResult) -> str:
    return answer.text if answer.text is not None else f"[{answer.status}: {answer.error}]"


async def play(path: Path, conversation: RecordedConversation, stack: Stack, directory: Path) -> list[str]:
    """Run the demo under names of its own, with a worker process."""
    own = f"demo-{uuid.uuid4().hex[:8]}"
    variables = {
        **stack.get_environment(),
        "HELIX_REDIS_PREFIX": f"{own}:",
        "HELIX_S3_PREFIX": own,
        "HELIX_TABLE_PREFIX": f"{own.replace('-', '_')}_",
        "HELIX_TASK_QUEUE": own,
        "HELIX_ALLOW_PLAINTEXT": "true",
    }
    settings = Settings.from_env(variables)
    worker = Worker(path, {**os.environ, **variables}, directory)
    async with own_tables(settings.postgres_dsn or "", prefix=settings.table_prefix):
        try:
            pid = await worker.start()
            say(f"  worker {pid} serves the agent")
            client = await Client.connect(settings.temporal_address, plugins=[HelixPlugin()])
            return await Demo(conversation, settings, worker, client).run()
        finally:
            worker.end()


def on_real_servers(path: Path, *, stay: bool) -> list[str]:
    """Start the servers, run, stop them; names of the numbers that were wrong."""
    conversation = read_conversation(path)
    say(paint("A conversation that survives its workers", "1"))
    rest = f"; {conversation.left_out} rows at its end are no whole turn" if conversation.left_out else ""
    messages = len(conversation.expected())
    say(f"  {path.name}: {len(conversation.turns)} turns, {messages} messages{rest}")
    heading("1  Real servers")
    servers = ("temporal", "redis", "postgres", "s3")
    with start_stack(servers, environment=os.environ, on_ready=_say_ready) as stack:
        directory = stack.directory / "demo"
        directory.mkdir()
        if stack.temporal.ui_url:
            say(f"  Temporal's UI: {stack.temporal.ui_url}")
        wrong = asyncio.run(play(path, conversation, stack, directory))
        if stay:
            input(f"\nLook at the session in {stack.temporal.ui_url} — Enter ends it. ")
    return wrong


def _say_ready(service: str, seconds: float) -> None:
    say(f"  {service:<9} ready after {seconds:.1f} s")


def main() -> int:
    """Exit status: 0 if every number is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("conversation", nargs="?", type=Path, default=CONVERSATION)
    parser.add_argument("--stay", action="store_true", help="keep the servers until Enter, to see the UI")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        wrong = on_real_servers(arguments.conversation, stay=arguments.stay)
    except KeyboardInterrupt:
        say("\nStopped.")
        return 130
    except (HelixError, DevStackError, WorkerFailedError) as error:
        say(f"{type(error).__name__}: {error}")
        return 1
    took = f"({time.monotonic() - began:.0f} s)"
    if wrong:
        say(f"\n{paint('WRONG', '31;1')}: {'; '.join(wrong)} {took}")
        return 1
    say(f"\n{paint('All numbers are right', '32;1')} {took}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
