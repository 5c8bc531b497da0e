"""A session of the Claude Agent SDK inside a workflow.  Its worker is killed between answer and report.

    python examples/claude_agent_sdk_sessions/claude_in_a_workflow.py

It needs a Temporal server: HELIX_TEMPORAL_ADDRESS, or one at localhost:7233.
"""

import asyncio
import os
import signal
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from claude_agent_sdk_sessions import QUESTIONS
from claude_desk import Desk, TurnActivities, get_text, load_entries
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore

TASK_QUEUE = "claude-desk"


class KillOnce(Interceptor):
    """Kills the worker once, when its first activity has returned and Temporal has not been told."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _KillOnce(next)


class _KillOnce(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await self.next.execute_activity(input)
        kill_once(Path(os.environ["DESK_KILLED"]))
        return result


def kill_once(mark: Path) -> None:
    """Kill this process, unless that was done before."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def run_worker() -> None:
    """Serve until the process ends."""
    settings = Settings.from_env(os.environ)
    client = await Client.connect(settings.temporal_address)
    await Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[Desk],
        activities=[TurnActivities(Backends(settings)).answer_turn],
        interceptors=[KillOnce()],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    ).run()


async def start_worker(number: int) -> asyncio.subprocess.Process:
    """A worker in a process of its own, with an empty home of Claude's, as on another machine."""
    home = Path(os.environ["DESK_HOMES"], f"home-{number}")
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(home)}
    return await asyncio.create_subprocess_exec(sys.executable, __file__, "worker", env=environment)


async def ask_questions(session_id: str, settings: Settings) -> None:
    """Ask two questions.  The first worker is killed when it has answered the first one."""
    client = await Client.connect(settings.temporal_address)
    desk = await client.start_workflow(Desk.run, id=session_id, task_queue=TASK_QUEUE)
    first, second = QUESTIONS
    print(first, flush=True)
    worker = await start_worker(1)
    answer = asyncio.create_task(desk.execute_update(Desk.ask, first))
    print(f"  the worker ended with {await worker.wait()}", flush=True)
    worker = await start_worker(2)
    try:
        print(f"  {await answer}\n{second}", flush=True)
        print(f"  {await desk.execute_update(Desk.ask, second)}")
        await desk.signal(Desk.close)
        await desk.result()
    finally:
        worker.terminate()
        await worker.wait()


async def print_session(session_id: str, settings: Settings) -> None:
    """The texts that are stored."""
    backends = Backends(settings)
    print("The session holds:")
    for entry in await load_entries(HelixSessionStore(backends.sessions), session_id):
        print(f"  {entry['type']}: {get_text(entry)}")
    await backends.close()


async def main() -> None:
    """Both questions, and what is stored then."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("HELIX_DATA_DIRECTORY", directory)
        os.environ["DESK_KILLED"] = str(Path(directory, "killed"))
        os.environ["DESK_HOMES"] = directory
        settings = Settings.from_env(os.environ)
        session_id = str(uuid4())
        await ask_questions(session_id, settings)
        await print_session(session_id, settings)


if __name__ == "__main__":
    asyncio.run(run_worker() if sys.argv[1:] == ["worker"] else main())
