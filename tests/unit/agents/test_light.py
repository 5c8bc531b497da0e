"""What agents cost those who import them."""

import subprocess
import sys


def test_agents_bring_neither_temporal_nor_a_driver() -> None:
    """Workflows import them in the sandbox, once a run."""
    heavy = ["temporalio", "redis", "asyncpg", "botocore", "aiohttp"]
    code = f"import sys, helix_temporal.agents; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
