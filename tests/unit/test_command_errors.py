"""What a command says where a server refuses it: one line, and a status of the table."""

import subprocess
import sys
from typing import Any

import pytest
import typer
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.cli import maintenance
from helix_temporal.cli._errors import exit_on_error
from helix_temporal.maintenance import MaintenancePlan
from helix_temporal.settings import Settings


async def test_schedules_that_temporal_refuses_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that may not make them was thirty lines of traceback, after a drain of minutes."""

    async def refuse(*_: object) -> None:
        raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")

    monkeypatch.setattr(maintenance, "ensure_schedules", refuse)
    client: Any = None
    with pytest.raises(typer.Exit) as ended, exit_on_error():
        await maintenance._make_schedules(client, Settings(), MaintenancePlan())
    assert ended.value.exit_code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        "InvalidConfigError: Temporal refused the schedules of maintenance: PERMISSION_DENIED: Request"
    )


def test_a_probe_brings_no_worker_along() -> None:
    """An orchestrator asks each few seconds: it took two seconds of the processor each time."""
    asks = "import sys; import helix_temporal.cli.health; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert not {"temporalio.worker", "helix_temporal.activities", "asyncpg"} & set(found.stdout.split())
