"""ADK's runner inside a workflow, two of whose workers are killed; a program outside reads the session."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from google.adk.events.event import Event
from order_workflow import Support
from temporalio.client import Client, WorkflowHandle
from temporalio.google_adk import GoogleAdkPlugin

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.google_adk import HelixSessionService

WORKER = Path(__file__).with_name("order_worker.py")
KILLED_AFTER = ("helix.google_adk.invoke_model", "helix.google_adk.append_event")


async def start_worker(*arguments: str) -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    return await asyncio.create_subprocess_exec(sys.executable, str(WORKER), *arguments)


async def run_workflow(session_id: str, settings: Settings, sessions: HelixSessionService) -> None:
    """Two workers are killed, one after the other; the third one ends the work."""
    client = await Client.connect(settings.temporal_address, plugins=[GoogleAdkPlugin()])
    queue = f"support-{session_id}"
    lines = ["Where is NL-20417?", "Thank you."]
    handle = await client.start_workflow(Support.run, args=[session_id, lines], id=queue, task_queue=queue)
    for name in KILLED_AFTER:
        worker = await start_worker(queue, name)
        code = await worker.wait()
        stored = len(await read_events(session_id, sessions))
        print(f"the worker ended with {code} after {name}, events stored: {stored}")
    worker = await start_worker(queue)
    try:
        for line, answer in zip(lines, await handle.result(), strict=True):
            print(f"{line} {answer}")
    finally:
        worker.terminate()
        await worker.wait()
    print(f"repeated by Temporal: {', '.join(await list_repeated(handle))}")


async def list_repeated(handle: WorkflowHandle[Support, list[str]]) -> list[str]:
    """The activities that Temporal started more than once."""
    names, repeated = dict[int, str](), list[str]()
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes"):
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        started = event.activity_task_started_event_attributes
        if started.attempt > 1:
            repeated.append(names[started.scheduled_event_id])
    return repeated


async def read_events(session_id: str, sessions: HelixSessionService) -> list[Event]:
    """The session as any program reads it that has the store."""
    session = await sessions.get_session(app_name="shop", user_id="ann", session_id=session_id)
    assert session is not None
    return list(session.events)


def describe_event(event: Event) -> str:
    """Who says what."""
    part = event.content.parts[0]
    if part.function_call:
        return f"{event.author} calls {part.function_call.name}"
    if part.function_response:
        return f"{part.function_response.name} answers: {part.function_response.response['result']}"
    return f"{event.author}: {part.text}"


async def main() -> None:
    """The workflow, what was called, and what is stored."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["CALLS"] = str(Path(directory, "calls"))
        os.environ.setdefault("HELIX_DATA_DIRECTORY", directory)
        settings = Settings.from_env(os.environ)
        backends = Backends(settings)
        sessions = HelixSessionService(backends.sessions)
        session_id = uuid4().hex[:8]
        await run_workflow(session_id, settings, sessions)
        calls = await asyncio.to_thread(Path(os.environ["CALLS"]).read_text)
        print(f"calls: {', '.join(calls.splitlines())}")
        events = await read_events(session_id, sessions)
        print(f"events stored: {len(events)}, with {len({event.id for event in events})} ids")
        for event in events:
            print(f"  {describe_event(event)}")
        await backends.close()


if __name__ == "__main__":
    asyncio.run(main())
