"""Every history that a campaign has written replays: nothing in a workflow's code depends on chance."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from helix_temporal.client import workflow_id
from helix_temporal.plugin import HelixPlugin
from tests.chaos._oracle import Findings

KEPT = "HELIX_TEST_CHAOS_HISTORIES"
"""Names a directory for histories that do not replay, instead of the campaign's own."""


async def check_replays(client: Client, names: Sequence[str], directory: Path) -> Findings:
    """Replay all executions of these sessions; what does not is kept, the finding says where."""
    findings, replayer = Findings(), Replayer(workflows=[], plugins=[HelixPlugin()])
    keep = Path(os.environ.get(KEPT, directory))
    for name in names:
        async for each in client.list_workflows(f"WorkflowId = '{workflow_id(name)}'"):
            history = await client.get_workflow_handle(each.id, run_id=each.run_id).fetch_history()
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            if result.replay_failure is not None:
                where = _kept(history, each.run_id, keep)
                findings.others.append(f"{name}: {where} does not replay: {result.replay_failure}")
    return findings


def _kept(history: WorkflowHistory, run_id: str, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{history.workflow_id.replace('/', '_')}-{run_id}.json"
    path.write_text(json.dumps({"workflow_id": history.workflow_id, **json.loads(history.to_json())}))
    return path
