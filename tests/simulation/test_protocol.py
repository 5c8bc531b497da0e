"""The protocol of threads under seeded faults: nothing lost, doubled, reordered or run again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation._campaign import Figures, run_campaign, run_chunk
from tests.simulation._run import simulate

# Hundreds of seeds each, in fixtures as well: processor time, which a busy machine shares out.
pytestmark = pytest.mark.timeout(600)

SEEDS = 1_600
PARTS = 8
FAULTS = (
    "crash",
    "zombie",
    "cancelled",
    "completion lost",
    "script, reply lost",
    "late script",
    "append tried again",
    "append given up",
    "hot wiped",
    "hot rolled back",
    "put of manifest, reply lost",
    "late put of manifest",
    "412 to its own success, manifest",
    "object store down",
    "slow object store",
    "terminated",
    "cancelled in mid-turn",
    "reset",
    "reset of an older execution",
    "rewound",
    "evict: dropped",
    "taken over by a dead execution",
    "turn waits for somebody",
    "suspended turn found",
    "suspended turn gone on with",
    "suspended turn given up",
    "suspended turn aborted",
    "terminated while suspended",
    "left while suspended",
)
PARTS_OF_THE_ARCHIVE = (
    "manifest: segment added",
    "manifest: segments merged",
    "manifest: index written",
    "manifest: cut inside a segment",
    "manifest: cut inside the index",
    "manifest: large state",
    "hot: newest part only",
    "hot: trimmed",
    "garbage collected",
)


class Promises:
    """A part of the seeds; parts are classes so that they run side by side."""

    part: int

    @pytest.mark.slow
    def test_hold_under_every_fault(self) -> None:
        """What users saw answered is in the thread, once and in order, whatever failed on the way."""
        count = SEEDS // PARTS
        figures = run_chunk(self.part * count, count)
        assert figures.violations == {}
        assert figures.seen["TURN RUN AGAIN"] == 0
        unjudged = sum(figures.seen[each] for each in figures.seen if each.startswith("no verdict"))
        assert unjudged <= 0.05 * count


class TestFirstPart(Promises):
    part = 0


class TestSecondPart(Promises):
    part = 1


class TestThirdPart(Promises):
    part = 2


class TestFourthPart(Promises):
    part = 3


class TestFifthPart(Promises):
    part = 4


class TestSixthPart(Promises):
    part = 5


class TestSeventhPart(Promises):
    part = 6


class TestEighthPart(Promises):
    part = 7


@pytest.fixture(scope="module")
def figures() -> Figures:
    """Of a few seeds: the rarest fault comes in every sixtieth."""
    return run_chunk(450, 300)


def test_every_fault_happens(figures: Figures) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    assert [fault for fault in FAULTS if not figures.seen[fault]] == []


def test_every_part_of_the_archive_is_used(figures: Figures) -> None:
    """Short runs must reach segments, merges, the index and cuts inside of both."""
    assert [part for part in PARTS_OF_THE_ARCHIVE if not figures.seen[part]] == []


def test_a_seed_replays_exactly() -> None:
    """A violation that cannot be seen again cannot be understood."""
    first: list[str] = []
    again: list[str] = []
    simulate(17, trace=first.append)
    simulate(17, trace=again.append)
    assert first == again
    assert len(first) > 100


def test_a_seed_replays_in_another_process() -> None:
    """The campaign's processes find what one process then shows."""
    lines: list[str] = []
    simulate(17, trace=lines.append)
    command = [sys.executable, "-m", "tests.simulation", "--seed", "17", "--trace"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*lines, "seed 17: all promises kept"]


def test_the_trace_changes_nothing() -> None:
    """Who looks at a failing seed must see what failed."""
    assert simulate(3).seen == simulate(3, trace=lambda _: None).seen


def test_a_campaign_adds_up() -> None:
    """The figures of the long form are those of its seeds."""
    heard: list[int] = []
    figures = run_campaign(60, jobs=1, progress=lambda so_far: heard.append(so_far.seeds))
    assert (figures.seeds, figures.failed, heard) == (60, 0, [50, 60])
    assert figures.seen == run_chunk(0, 60).seen


def test_a_campaign_reports_what_failed(tmp_path: Path) -> None:
    """The file says which seeds to run again."""
    figures = Figures(seeds=2, failed=1, violations={1: "why"})
    report = tmp_path / "simulate.json"
    report.write_text(json.dumps(figures.as_json()))
    assert json.loads(report.read_text())["failing"] == {"1": "why"}
