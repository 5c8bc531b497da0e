"""What `helm test` runs in a pod, as a program on real servers."""

import pytest

from tests.architecture._chart import golden, pods
from tests.docs.test_examples import complaints, run, running, variables

pytestmark = pytest.mark.slow  # each starts processes

__all__ = ["variables"]  # a fixture


@pytest.fixture
def program() -> list[str]:
    """The arguments of the pod, behind its Python."""
    (container,) = pods(golden("trial"))["test"]["containers"]
    command, *arguments = container["command"]
    assert command == "python"
    return [*arguments, *container["args"]]


def test_a_trial_ends_with_an_answer(program: list[str], variables: dict[str, str]) -> None:
    """The third of three commands: it prints what the agent said."""
    with running("workers/session_worker.py", variables):
        asked = run(program, variables)
    assert (asked.returncode, complaints(asked)) == (0, [])
    assert "shipped" in asked.stdout


def test_a_trial_without_a_server_says_what_is_missing(program: list[str]) -> None:
    """One line in the pod's log, and a pod that failed."""
    ran = run(program, {"HELIX_TEMPORAL_ADDRESS": "127.0.0.1:1"})
    assert ran.returncode == 1
    assert ran.stderr.startswith("StoreUnavailableError: Temporal at 127.0.0.1:1 does not answer")
