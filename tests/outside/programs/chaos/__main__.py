"""One run: servers, workers, people, faults; then everything settles and the oracle looks."""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.service import RPCError

from chaos import oracle
from chaos.agents import LEDGER_VARIABLE
from chaos.clients import People, Session
from chaos.faults import Faults
from chaos.ledger import read_ledger
from chaos.s3_proxy import S3Proxy
from chaos.stack import HotStore, Workers
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.devstack import Stack, start_stack
from helix_temporal.errors import HelixError
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.worker import connect

SETTLE_SECONDS: Final = 180.0
EMPTY_SECONDS: Final = 90.0


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


async def _about(key: str, client: SessionClient) -> str:
    """What is known of the session whose key this is."""
    found = re.search(r"\{(.+?)\}", key)
    name = re.sub("~([0-9a-f]{2})", lambda each: chr(int(each[1], 16)), found[1] if found else key)
    told = []
    session = client.session(name)
    for look in (session.get_status, session.describe_thread):
        try:
            told.append(str(await look()))
        except (HelixError, TimeoutError, RPCError) as error:
            told.append(f"{type(error).__name__}: {error}")
    return "; ".join(told)[:1500]


class Run:
    """One seed."""

    def __init__(self, arguments: argparse.Namespace, stack: Stack, directory: Path) -> None:
        self._arguments, self._stack, self._directory = arguments, stack, directory
        self._seed: int = arguments.seed
        self._environment = {
            **os.environ,
            **stack.get_environment(),
            "HELIX_TASK_QUEUE": f"outside-{self._seed}",
        }
        self._environment[LEDGER_VARIABLE] = str(directory / "ledger.jsonl")
        self._findings = oracle.Findings()

    async def run(self) -> dict[str, Any]:
        """The report."""
        upstream = urlsplit(self._environment["HELIX_S3_ENDPOINT"])
        proxy = S3Proxy((str(upstream.hostname), int(upstream.port or 80)), self._seed)
        direct = dict(self._environment)
        self._environment["HELIX_S3_ENDPOINT"] = await proxy.start()
        workers, hot = Workers(self._environment, self._directory), HotStore(direct["HELIX_REDIS_URL"])
        try:
            return await self._with(proxy, workers, hot, direct)
        finally:
            workers.stop()
            await proxy.stop()
            await hot.close()

    async def _with(
        self, proxy: S3Proxy, workers: Workers, hot: HotStore, direct: dict[str, str]
    ) -> dict[str, Any]:
        for _ in range(2):
            workers.start()
        settings = Settings.from_env(self._environment)
        client, _ = await connect(settings)
        options = SessionOptions(
            idle_timeout=20, max_turns_per_run=9, suspend="exit" if self._seed % 2 else "wait"
        )
        sessions = [Session(f"s{self._seed}-{number}") for number in range(self._arguments.sessions)]
        people = People(
            SessionClient(client, task_queue=settings.task_queue, options=options), sessions, seed=self._seed
        )
        faults = Faults(
            seed=self._seed, client=client, people=people, workers=workers, hot=hot, s3=proxy,
            stack=self._stack, freeze_seconds=self._arguments.freeze,
        )  # fmt: skip
        asking = [
            asyncio.create_task(people.keep_asking(session, asker))
            for session in list(sessions)
            for asker in range(3)
        ]
        try:
            await people.ask(sessions[0], f"{sessions[0].id}-first", "hello", lambda: True)
            _say(f"seed {self._seed}: strikes for {self._arguments.seconds} s")
            await faults.strike(self._arguments.seconds, frozenset(self._arguments.only))
            people.going = False
            await faults.settle()
            _say(f"seed {self._seed}: settles after {sum(faults.counts.values())} faults")
            for worker in list(workers.running):
                workers.kill(worker)
            for _ in range(2):
                workers.start()
            workers.start("maintenance")
            await asyncio.wait(asking, timeout=SETTLE_SECONDS)
            await self._end(people, sessions)
        finally:
            for task in (*asking, *people.answering):
                task.cancel()
            await asyncio.gather(*asking, *people.answering, return_exceptions=True)
        try:
            await self._judge(people, sessions, faults, hot, direct)
        except BaseException:
            for session in sessions:
                await self._keep_histories(client, session.id)
            raise
        for name in {found.split(":")[0] for found in self._findings.violations}:
            for session in sessions:
                if name.startswith(session.id):
                    await self._keep_histories(client, session.id)
        return self._report(people, faults, proxy)

    async def _keep_histories(self, client: Client, session_id: str) -> None:
        """For whoever looks for the cause."""
        found = workflow_id(session_id)
        async for each in client.list_workflows(f"WorkflowId = '{found}'"):
            history = await client.get_workflow_handle(found, run_id=each.run_id).fetch_history()
            path = self._directory / f"{session_id}-{each.start_time:%H%M%S.%f}-{each.run_id}.json"
            path.write_text(history.to_json())
        with contextlib.suppress(RPCError):
            described = await client.get_workflow_handle(found).describe()
            (self._directory / f"{session_id}-described.txt").write_text(str(described.raw_description))

    async def _end(self, people: People, sessions: list[Session]) -> None:
        """A last message in each session, then all of them are closed."""
        deadline = time.monotonic() + SETTLE_SECONDS
        await asyncio.gather(
            *(
                people.ask(session, f"{session.id}-last", "note", lambda: time.monotonic() < deadline)
                for session in sessions
            )
        )
        await asyncio.gather(*(self._close(people.client, session.id) for session in sessions))

    async def _close(self, client: SessionClient, session_id: str) -> None:
        try:
            await client.session(session_id).close()
            async with asyncio.timeout(60):
                await client.session(session_id).result()
        except (HelixError, TimeoutError) as error:
            self._findings.violations.append(f"{session_id}: does not close: {type(error).__name__}: {error}")

    async def _judge(
        self, people: People, sessions: list[Session], faults: Faults, hot: HotStore, direct: dict[str, str]
    ) -> None:
        names = [session.id for session in sessions]
        before = await self._read(names, direct)
        states = {name: await people.client.session(name).get_state() for name in names}
        usages = {name: await people.client.session(name).get_usage() for name in names}
        await self._check_empty(hot, people)
        await hot.wipe()
        after = await self._read(names, direct)
        findings, ledger = self._findings, read_ledger(Path(direct[LEDGER_VARIABLE]))
        oracle.note_given(people.asks, ledger)
        oracle.check_ends(findings, people.asks)
        findings.violations += [f"an error without a type: {each}" for each in dict.fromkeys(people.untyped)]
        for session in sessions:
            thread, state = before[session.id], states[session.id]
            asks = [ask for ask in people.asks if ask.session == session.id]
            oracle.check_asks(findings, session, asks, thread, faults.lost_hot)
            oracle.check_sends(findings, session, thread)
            oracle.check_calls_and_results(findings, session.id, thread)
            oracle.check_same(findings, session.id, thread, after[session.id])
            oracle.check_state(findings, session.id, thread, state.custom_state.get("note"))
            oracle.check_usage(findings, session.id, thread, usages[session.id], ledger)
        oracle.check_effects(findings, sessions, ledger, faults.unarchived_losses())
        oracle.check_payments(findings, people.asks, ledger, faults.frozen, faults.lost_hot)

    async def _read(self, names: list[str], environment: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "chaos.reader", *names],
            env=environment,
            check=False,
            capture_output=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"the reader ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
        return found

    async def _check_empty(self, hot: HotStore, people: People) -> None:
        """All sessions have ended: within a minute or so nothing is left in Redis but what expires."""
        deadline = time.monotonic() + EMPTY_SECONDS
        while (keys := await hot.lasting_keys()) and time.monotonic() < deadline:
            await asyncio.sleep(2)
        for key in keys:
            self._findings.violations.append(f"left in Redis: {key}; {await _about(key, people.client)}")

    def _report(self, people: People, faults: Faults, proxy: S3Proxy) -> dict[str, Any]:
        findings = self._findings
        return {
            "seed": self._seed,
            "violations": findings.violations,
            "explained": findings.explained,
            "asks": len(people.asks),
            "told": sum(ask.told_at > 0 for ask in people.asks),
            "stopped": sum(ask.stopped for ask in people.asks),
            "taken_back": sum(ask.taken_back is not False for ask in people.asks),
            "seen": findings.seen,
            "faults": faults.counts,
            "s3": proxy.seen,
            "errors_met": people.errors,
            "submitted": people.submitted,
            "log": [[round(at / 1e9, 2), what] for at, what in faults.log] if findings.violations else [],
            "books": [asdict(ask) for ask in people.asks] if findings.violations else [],
        }


def main() -> int:
    """Not zero where something was violated."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=120, help="of faults")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--freeze", type=float, default=20, help="seconds that a worker is frozen")
    parser.add_argument("--only", nargs="*", default=[], help="faults, instead of all")
    parser.add_argument("--output", type=Path, help="where the report is written; else it is printed")
    parser.add_argument("--keep", type=Path, help="a directory for logs and ledger, kept afterwards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helix-outside-") as temporary, start_stack() as stack:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [str(Path(sys.executable).with_name("helix-temporal")), "migrate"],
            env={**os.environ, **stack.get_environment()}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        report = asyncio.run(Run(arguments, stack, directory).run())
    text = json.dumps(report, indent=1)
    if arguments.output:
        arguments.output.write_text(text)
    shown = {name: value for name, value in report.items() if name not in {"log", "books"}}
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    return bool(report["violations"])


if __name__ == "__main__":
    sys.exit(main())
