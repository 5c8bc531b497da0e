"""The same chat with the transcript in the workflow, as temporalio-openai-agents has it, and with ours."""

import asyncio
import contextlib
import dataclasses
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.contrib.aws.s3driver import S3StorageDriver
from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import ExternalStorage
from temporalio.service import RPCError

from bench._bare_stores import s3_client
from bench._lab import Lab, environment
from bench._peers import PeerMissingError, interpreter
from bench._report import Row, compared, told
from bench._workers import program, worker
from bench.worker import ANSWER
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings

OURS: Final = "ours"
THEIRS: Final = "temporalio-openai-agents"
EXTERNAL: Final = "temporalio-openai-agents, external storage"
_ENVIRONMENT: Final = "temporalio-openai-agents"
_SCRIPT: Final = Path(__file__).parent / "peers" / "temporalio_openai_agents.py"
_TEXT_BYTES: Final = 1024
_EARLY: Final = 10
_LATE_FROM: Final = 0.4
"""From which part of a session on turns count as late: turn 20 of 50."""
_AROUND: Final = 5
_MOST_MORE: Final = 400
_LONGEST: Final = 60.0
_STUCK: Final = 180.0
"""Of many sessions at once each may wait for all others."""


class Ours:
    """Sessions of this package: threads in Redis, archived with each step."""

    def __init__(self, client: Client, settings: Settings) -> None:
        options = SessionOptions(idle_timeout=3600)
        self._sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
        self._client = client

    async def begin(self, session_id: str, before: int = 0) -> None:  # noqa: ARG002 (as for the others)
        """Sessions begin with their first ask."""
        assert before == 0

    async def ask(self, session_id: str, text: str) -> None:
        """One turn."""
        result = await self._sessions.ask(session_id, text, agent="plain")
        assert result.status is AskStatus.ANSWERED, result

    async def end(self, session_id: str) -> None:
        """Close, and wait until it is archived."""
        await self._sessions.session(session_id).close()
        await self._sessions.session(session_id).result()

    def run(self, session_id: str) -> WorkflowHandle[Any, Any]:
        """Its present run."""
        return self._client.get_workflow_handle(workflow_id(session_id))


class Theirs:
    """The transcript is in the workflow, and in the input of each model call."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client, self._queue = client, queue

    async def begin(self, session_id: str, before: int = 0) -> None:
        """Start it with what so many turns leave behind."""
        items = [each for _ in range(before) for each in _items()]
        await self._client.start_workflow(
            "bench.openai_chat", args=[items], id=session_id, task_queue=self._queue
        )

    async def ask(self, session_id: str, text: str) -> None:
        """One turn; again if its run moved on under it, since a chat's client would."""
        for _ in range(3):
            try:
                answer = await self.run(session_id).execute_update("ask", text, result_type=str)
            except (WorkflowUpdateFailedError, RPCError):
                continue
            assert answer
            return
        raise RuntimeError("asked three times")

    async def end(self, session_id: str) -> None:
        """End it."""
        await self.run(session_id).signal("close")
        await self.run(session_id).result()

    def run(self, session_id: str) -> WorkflowHandle[Any, Any]:
        """Its present run."""
        return self._client.get_workflow_handle(session_id)


Contestant = Ours | Theirs


def _items() -> list[dict[str, Any]]:
    """What a turn leaves in their transcript."""
    said: dict[str, Any] = {"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": None}
    answer = {"id": "", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    return [{"role": "user", "content": ANSWER}, answer]


@dataclass(frozen=True, slots=True)
class _Talk:
    """What a session was: seconds at which each turn ended, counted from its beginning."""

    ended: tuple[float, ...]

    @property
    def late_rate(self) -> float:
        """Turns a second in the later part."""
        at = max(1, round(len(self.ended) * _LATE_FROM))
        return (len(self.ended) - at) / (self.ended[-1] - self.ended[at - 1])


async def chats(lab: Lab) -> list[Row]:
    """Turns a second side by side."""
    async with _field(lab) as (field, rows):
        for sessions, rounds in zip(lab.sizes.chats, lab.sizes.chat_rounds, strict=True):
            rows.extend(await _rates(lab, field, sessions, rounds))
    return rows


async def long_chat(lab: Lab) -> list[Row]:
    """One long session of each, turn by turn beside the others."""
    async with _field(lab) as (field, rows):
        rows.extend(await _long(lab, field))
    return rows


async def full_chat(lab: Lab) -> list[Row]:
    """The turn at which theirs ends."""
    async with _field(lab) as (field, rows):
        for name in (THEIRS, EXTERNAL):
            if name in field:
                rows.append(await _last_turn(lab, name, field[name]))
    return rows


@contextlib.asynccontextmanager
async def _field(lab: Lab) -> AsyncIterator[tuple[dict[str, Contestant], list[Row]]]:
    """All that can be had, and a row that says why theirs can't."""
    rows: list[Row] = []
    async with contextlib.AsyncExitStack() as stack:
        field: dict[str, Contestant] = {OURS: await stack.enter_async_context(_ours(lab))}
        try:
            for name in (THEIRS, EXTERNAL):
                field[name] = await stack.enter_async_context(_theirs(lab, external=name == EXTERNAL))
        except PeerMissingError as error:
            lab.say(f"{THEIRS}: {error}")
            rows.append(Row(f"chat: {THEIRS}", None, "", note=str(error)))
        yield field, rows


@contextlib.asynccontextmanager
async def _ours(lab: Lab) -> AsyncIterator[Contestant]:
    settings = lab.own()
    async with worker("helix", settings):
        client = await Client.connect(lab.settings.temporal_address, plugins=[HelixPlugin()])
        yield Ours(client, settings)


@contextlib.asynccontextmanager
async def _theirs(lab: Lab, *, external: bool) -> AsyncIterator[Contestant]:
    python = await interpreter(lab, _ENVIRONMENT)
    settings = lab.own()
    command = (python, str(_SCRIPT), *(["external"] if external else []))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            program(command, {**environment(settings), "BENCH_ANSWER": ANSWER, "PYTHONPATH": ""})
        )
        converter = pydantic_data_converter
        if external:
            s3 = await stack.enter_async_context(s3_client(settings))
            driver = S3StorageDriver(client=new_aioboto3_client(s3), bucket=settings.s3_bucket or "")
            storage = ExternalStorage(drivers=[driver], payload_size_threshold=0)
            converter = dataclasses.replace(converter, external_storage=storage)
        client = await Client.connect(lab.settings.temporal_address, data_converter=converter)
        yield Theirs(client, settings.task_queue)


async def _rates(lab: Lab, field: dict[str, Contestant], sessions: int, rounds: int) -> list[Row]:
    """Turns a second of all sessions, over the whole and over the later part."""
    whole: dict[str, list[float]] = {name: [] for name in field}
    late: dict[str, list[float]] = {name: [] for name in field}
    rows = []
    for number in range(rounds):
        for name, contestant in field.items():
            if name not in whole:
                continue
            lab.say(f"chat, {sessions} session(s), round {number + 1} of {rounds}: {name}")
            found = await asyncio.gather(
                *(_talk(lab, contestant, lab.sizes.chat_turns) for _ in range(sessions))
            )
            talks = [each for each in found if each is not None]
            if len(talks) < sessions:
                note = f"{sessions - len(talks)} got no answer to a turn within {_STUCK:.0f} s"
                if name == OURS:
                    raise RuntimeError(f"ours, {sessions} sessions: {note}")
                rows.append(Row(f"chat, {sessions} session(s): {name}", None, "", note=note))
                del whole[name], late[name]
                continue
            spent = max(each.ended[-1] for each in talks)
            whole[name].append(sessions * lab.sizes.chat_turns / spent)
            late[name].append(sum(each.late_rate for each in talks))
    for what, rates in (("turns a second", whole), ("late turns a second", late)):
        start = f"chat, {sessions} session(s) × {lab.sizes.chat_turns}: {what}"
        for name, values in rates.items():
            if name == OURS:
                rows.append(told(f"{start}: {name}", "turns/s", values))
            else:
                least = 1.0 if what.startswith("late") else None
                rows.append(
                    compared(
                        f"{start}: {OURS} against {name}",
                        "turns/s",
                        rates[OURS],
                        values,
                        at_least=least,
                    )
                )
    return rows


async def _talk(lab: Lab, contestant: Contestant, turns: int) -> _Talk | None:
    """One session; None where it got no answer."""
    session_id = f"bench-{uuid.uuid4().hex}"
    texts = [lab.words.text(_TEXT_BYTES) for _ in range(turns)]
    await contestant.begin(session_id)
    started, ended = time.perf_counter(), []
    for text in texts:
        if await _unanswered(contestant.ask(session_id, text), _STUCK):
            await contestant.run(session_id).terminate()
            return None
        ended.append(time.perf_counter() - started)
    await contestant.end(session_id)
    return _Talk(tuple(ended))


@dataclass(slots=True)
class _Long:
    """One long session: seconds and bytes of history of each turn (None where its run moved on)."""

    session_id: str
    seconds: list[float]
    bytes: list[int | None]

    def around(self, turn: int) -> list[float]:
        """Seconds of the turns around one."""
        return self.seconds[max(0, turn - _AROUND) : turn + _AROUND]

    def added(self, turn: int) -> list[float]:
        """Bytes that the turns around one added."""
        found = [each for each in self.bytes[max(0, turn - _AROUND) : turn + _AROUND] if each is not None]
        return [float(each) for each in found]


async def _long(lab: Lab, field: dict[str, Contestant]) -> list[Row]:
    """One session each, turn by turn beside the others'."""
    last = lab.sizes.chat_long
    talks = {name: _Long(f"bench-{uuid.uuid4().hex}", [], []) for name in field}
    for name, talk in talks.items():
        await field[name].begin(talk.session_id)
    before: dict[str, tuple[str, int]] = dict.fromkeys(field, ("", 0))
    for turn in range(last):
        if turn % 50 == 0:
            lab.say(f"chat, one long session: turn {turn} of {last}")
        for name, talk in talks.items():
            started = time.perf_counter()
            await field[name].ask(talk.session_id, lab.words.text(_TEXT_BYTES))
            talk.seconds.append(time.perf_counter() - started)
            after = await _history(field[name].run(talk.session_id))
            talk.bytes.append(after[1] - before[name][1] if after[0] == before[name][0] else None)
            before[name] = after
    for name, talk in talks.items():
        await field[name].end(talk.session_id)
    return [row for name, talk in talks.items() for row in _long_rows(name, talk, last)]


def _long_rows(name: str, talk: _Long, last: int) -> Sequence[Row]:
    early = min(_EARLY, last // 2)
    first, latest = (statistics.median(talk.around(at)) for at in (early, last - _AROUND))
    ours = name == OURS
    rows = [
        told(
            f"chat to turn {last}: a turn there against turn {early}: {name}",
            "×",
            [latest / first],
            at_most=1.15 if ours else None,
            note=f"{first * 1e3:.3g} ms at turn {early}, {latest * 1e3:.3g} ms at turn {last}",
        )
    ]
    for turn in (early, last - _AROUND):
        added = talk.added(turn)
        if added:
            where = early if turn == early else last
            rows.append(told(f"chat: history of turn {where}: {name}", "B", added))
    return rows


async def _history(run: WorkflowHandle[Any, Any]) -> tuple[str, int]:
    described = await run.describe()
    return described.run_id, described.raw_description.workflow_execution_info.history_size_bytes


async def _last_turn(lab: Lab, name: str, contestant: Contestant) -> Row:
    """The turn that a chat never gets an answer to, begun where it has had many."""
    start = lab.sizes.chat_full
    session_id = f"bench-{uuid.uuid4().hex}"
    await contestant.begin(session_id, start)
    for turn in range(start, start + _MOST_MORE):
        if turn % 25 == 0:
            lab.say(f"chat, {name}: turn {turn}")
        why = await _unanswered(contestant.ask(session_id, lab.words.text(_TEXT_BYTES)), _LONGEST)
        if why:
            with contextlib.suppress(RPCError):  # the server may have ended under it
                await contestant.run(session_id).terminate()
            note = f"no answer ({why}); begun at turn {start} with what it had by then"
            return told(f"chat: the turn that fails: {name}", "turns", [turn + 1], note=note)
    await contestant.end(session_id)
    return Row(f"chat: the turn that fails: {name}", None, "", note=f"none up to {start + _MOST_MORE}")


async def _unanswered(asked: Coroutine[Any, Any, None], seconds: float) -> str:
    """Why no answer came; empty if one did."""
    asking = asyncio.create_task(asked)
    # Not a time-out around it: the client of an update may go on although it was cancelled.
    done, _ = await asyncio.wait({asking}, timeout=seconds)
    if not done:
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody asks for it
        asking.cancel()
        return f"none within {seconds:.0f} s"
    error = asking.exception()
    if error is not None and not isinstance(error, RuntimeError | RPCError | WorkflowUpdateFailedError):
        raise error
    return "" if error is None else type(error).__name__
