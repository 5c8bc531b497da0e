"""What a command says where a server refuses it: one line, and status 1."""

import pytest
import typer
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.cli._running import exit_on_error


def test_what_temporal_refuses_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A key that may not make schedules was thirty lines of traceback, after a drain of minutes."""
    with pytest.raises(typer.Exit) as ended, exit_on_error():
        raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["Temporal refused a call: PERMISSION_DENIED: Request unauthorized."]
