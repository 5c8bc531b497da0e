"""``helix-temporal dev`` where servers are named already."""

import socket

from typer.testing import CliRunner

from helix_temporal.cli.commands import app


def test_a_stack_of_which_nothing_is_started_says_so_and_ends() -> None:
    """It said that Temporal was ready after 0.0 s, and waited for Ctrl-C to stop what it had not started."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        found = CliRunner().invoke(app, ["dev", "temporal"], env={"HELIX_TEMPORAL_ADDRESS": address})
    assert found.exit_code == 0
    assert "Nothing to start." in found.stdout
    assert f"export HELIX_TEMPORAL_ADDRESS={address}" in found.stdout
    assert "Starting" not in found.stdout
    assert "ready" not in found.stdout
    # Temporal holds no sessions that could be inspected.
    assert "inspect" not in found.stdout
