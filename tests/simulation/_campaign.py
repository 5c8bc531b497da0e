"""Many seeds on several processes."""

import logging
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation._joined import simulate_joined
from tests.simulation._neighbours import simulate_neighbours
from tests.simulation._recorded import simulate_recorded
from tests.simulation._run import Verdict, simulate

CHUNK = 50
KEPT = 20
ASIDE = 4
"""Of so many seeds one each also tells of several threads on one worker, of programs that share a session,
and of programs that keep records."""


@dataclass
class Figures:
    """What a campaign found.

    Attributes:
        violations: Seeds whose promises broke, and how: the first few of them.
        seen: How often each fault was survived, and each part of the protocol ran.
    """

    seeds: int = 0
    failed: int = 0
    violations: dict[int, str] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: "Figures") -> None:
        """Take in the figures of some more seeds."""
        self.seeds, self.failed = self.seeds + other.seeds, self.failed + other.failed
        self.violations |= dict(list(other.violations.items())[: KEPT - len(self.violations)])
        self.seen += other.seen

    def as_json(self) -> dict[str, object]:
        """For ``build/simulate.json``."""
        return {
            "seeds": self.seeds,
            "violations": self.failed,
            "seconds": round(self.seconds, 1),
            "failing": {str(seed): why for seed, why in self.violations.items()},
            "survived": dict(sorted(self.seen.items())),
        }


def run_chunk(first: int, count: int) -> Figures:
    """Some seeds, one after the other."""
    # Abandoned tasks and refused compactions are what a simulation is made of.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return _simulated(range(first, first + count))
    finally:
        logging.disable(logging.NOTSET)


def _simulated(seeds: range) -> Figures:
    figures = Figures(seeds=len(seeds))
    for seed in seeds:
        _add(figures, simulate(seed))
        if seed % ASIDE == 0:
            _add(figures, simulate_neighbours(seed))
        if seed % ASIDE == 1:
            _add(figures, simulate_joined(seed))
        if seed % ASIDE == 2:
            _add(figures, simulate_recorded(seed))
    return figures


def _add(figures: Figures, verdict: Verdict) -> None:
    figures.seen += verdict.seen
    if verdict.why:
        figures.failed += 1
        figures.violations[verdict.seed] = verdict.why


def run_campaign(
    seeds: int, *, start: int = 0, jobs: int = 2, progress: Callable[[Figures], None] = lambda _: None
) -> Figures:
    """Run ``seeds`` seeds from ``start`` on; ``progress`` hears of it every now and then."""
    begun, total = time.monotonic(), Figures()
    chunks = [(at, min(CHUNK, start + seeds - at)) for at in range(start, start + seeds, CHUNK)]
    for figures in _spread(chunks, jobs):
        total.add(figures)
        total.seconds = time.monotonic() - begun
        progress(total)
    return total


def _spread(chunks: list[tuple[int, int]], jobs: int) -> Iterator[Figures]:
    if jobs == 1:
        yield from (run_chunk(*chunk) for chunk in chunks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_star, chunks)


def _star(chunk: tuple[int, int]) -> Figures:
    return run_chunk(*chunk)
