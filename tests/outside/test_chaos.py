"""The chaos program in its short form, from the built wheel; ``make outside`` runs it for long."""

import json
from pathlib import Path

import pytest

from tests.outside._environment import Outside, make_outside


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """A fresh environment with the wheel."""
    return make_outside(tmp_path_factory.mktemp("outside"), ["chaos"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1])
def test_what_was_acknowledged_outlasts_every_fault(outside: Outside, seed: int, tmp_path: Path) -> None:
    """Once and in order, no effect under two keys, books that agree, and the same from the archive alone."""
    output = tmp_path / "report.json"
    arguments = ("--seed", str(seed), "--seconds", "20", "--freeze", "12", "--output", str(output))
    ran = outside.run("chaos", *arguments, seconds=500)
    assert output.exists(), ran.stderr[-2000:]
    report = json.loads(output.read_text())
    assert report["violations"] == []
    assert report["seen"]["acknowledged answers that stand"] > 5
    assert sum(report["faults"].values()) > 3
