"""Stores what must not change: ``python -m tests.replay.record [--wire] [VERSION]``.

With a version, plays each story on a stack of its own and writes the histories to ``histories/VERSION``.
A stored history is never edited: a change of workflow code that breaks one of a released version needs
`workflow.patched`.  With ``--wire``, writes names and schemas to ``wire.json``: look at the difference before
it is committed, since what is gone or renamed there breaks what runs.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from temporalio.client import WorkflowHistory

from helix_temporal.devstack import start_stack
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.testing.serving import session_worker
from tests.replay import _agent_stories
from tests.replay._agent_stories import AGENTS
from tests.replay._handle_stories import HANDLE
from tests.replay._stories import STORIES, Story, agents
from tests.replay._tree_stories import TREES
from tests.replay._wire import HERE, WIRE_FILE, names, schemas

ALL: Final[Mapping[str, Story]] = STORIES | AGENTS | HANDLE | TREES
"""Stories of which each version has the histories, by name."""


async def record(version: str, environment: dict[str, str]) -> None:
    """Play all stories and write their histories."""
    target = HERE / "histories" / version
    target.mkdir(parents=True, exist_ok=True)
    fields = Settings.from_env({**environment, "HELIX_TASK_QUEUE": "replay", "HELIX_ALLOW_PLAINTEXT": "true"})
    timeouts = Timeouts(heartbeat_timeout=timedelta(seconds=2), heartbeat_every=timedelta(seconds=0.3))
    settings = fields.model_copy(update={"timeouts": timeouts})
    players = [*agents(), *_agent_stories.agents()]
    async with session_worker(settings, players, options=SessionOptions(idle_timeout=60)) as served:
        for name, story in ALL.items():
            for number, (workflow_id, run_id) in enumerate(await story(served, "story")):
                handle = served.client.get_workflow_handle(workflow_id, run_id=run_id)
                path = target / f"{name}-{number}.json"
                path.write_text(stored(await handle.fetch_history()))
                print(f"{path.name}: {path.stat().st_size} bytes", flush=True)  # noqa: T201 (a command)


def stored(history: WorkflowHistory) -> str:
    """The history as it is kept: without the names of the machine that made it."""
    found = _without_places(json.loads(history.to_json()))
    return json.dumps({"workflow_id": history.workflow_id, **found}, indent=1, sort_keys=True) + "\n"


def _without_places(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_places(each) for each in value]
    if not isinstance(value, dict):
        return value
    places = {"identity": "recorder", "stackTrace": "", "namespaceId": ""}
    return {key: places.get(key, _without_places(each)) for key, each in value.items()}


def load(path: Path) -> WorkflowHistory:
    """A stored history."""
    found = json.loads(path.read_text())
    return WorkflowHistory.from_json(found.pop("workflow_id"), found)


def main() -> None:
    """Record what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?")
    parser.add_argument("--wire", action="store_true")
    arguments = parser.parse_args()
    if arguments.wire:
        found = {"names": names(), "schemas": schemas()}
        WIRE_FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if arguments.version:
        with start_stack(("temporal", "redis", "s3")) as stack:
            environment: dict[str, str] = {}
            for service in ("temporal", "redis", "s3"):
                environment |= stack.get_environment(service)
            asyncio.run(record(arguments.version, environment))


if __name__ == "__main__":
    main()
