"""Traces of turns whose workers are killed: after a backfill each turn that ended has exactly one root."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from helix_temporal.activities.trace_backfill import TraceBackfill
from helix_temporal.backends import Backends
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.messages import Message
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.models.usage import TokenUsageEntry, UsageEntry
from helix_temporal.settings import Settings
from helix_temporal.telemetry.emitter import Emitter
from helix_temporal.telemetry.ids import derive_span_id
from tests.chaos._kills import KillCampaign
from tests.chaos._oracle import Findings
from tests.chaos._span_file import EXPORT_SECONDS, FoundSpan, file_provider, read_spans
from tests.chaos._workers import WorkerProcess

_SETTLED: Final = EXPORT_SECONDS + 5.0
"""Seconds after which a worker that lives has exported a span, also on a busy machine."""


class TraceKills(KillCampaign):
    """Sessions whose workers tell of turns, and are killed with spans in their hands."""

    name = "traces"

    def __init__(self, settings: Settings, directory: Path, *, seed: int, sessions: int = 200) -> None:
        super().__init__(settings, directory, seed=seed, sessions=sessions, askers=1)
        self._spans, self._again = directory / "spans.jsonl", directory / "again.jsonl"
        self._killed: list[float] = []
        self._figures: dict[str, Any] = {}

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self._settings, self.books, spans=self._spans)

    async def _after_kill(self) -> None:
        self._killed.append(time.time())

    async def _further(self, threads: Mapping[str, Sequence[Message]]) -> Findings:
        await asyncio.sleep(_SETTLED)
        before = list(read_spans(self._spans))
        backends = Backends(self._settings)
        try:
            runs, entries = await _read_all_runs(backends)
            emitter = Emitter(file_provider(self._again))
            told = await TraceBackfill(backends.sessions, backends.usage, emitter.emit).tell_since(0)
            await asyncio.to_thread(emitter.close)
        finally:
            await backends.close()
        after = [*before, *read_spans(self._again)]
        self._figures = {
            "turns": len(runs),
            "spans_exported": len(before),
            "spans_after_backfill": len({each.span_id for each in after}),
            "roots_lost": len(runs) - len({each.span_id for each in before if each.is_root}),
            "turns_told_again": told.turns,
        }
        others = [
            *self._find_doubled(before, runs),
            *self._find_unexplained(before, runs),
            *_find_missing(after, runs),
            *_find_orphans(after),
            *_compare_tokens(after, entries),
        ]
        return Findings(others=others)

    def _find_unexplained(self, spans: list[FoundSpan], runs: list[Run]) -> list[str]:
        """A root may be missing only where a worker was killed while its turn ran, or was to be exported."""
        found = {each.span_id for each in spans}
        return [
            f"turn {run.run_id} of {run.session_id} has no root, and nobody was killed then"
            for run in runs
            if _root_of(run) not in found and not any(_had_it(run, each) for each in self._killed)
        ]

    def _find_doubled(self, spans: list[FoundSpan], runs: list[Run]) -> list[str]:
        """A root may be told twice only where the first to tell it was killed before its step had ended."""
        counted, ended = (
            Counter(each.span_id for each in spans if each.is_root),
            {_root_of(run): run for run in runs},
        )
        return [
            f"root {root:x} was told {times} times, and nobody was killed then"
            for root, times in counted.items()
            if times > 1 and not (root in ended and any(_had_it(ended[root], each) for each in self._killed))
        ]

    def _counts(self) -> dict[str, Any]:
        return self._figures


def _had_it(run: Run, killed: float) -> bool:
    ended = (run.ended_at or run.started_at) / 1000
    return run.started_at / 1000 - 1 <= killed <= ended + _SETTLED


def _root_of(run: Run) -> int:
    return derive_span_id(run.session_id, run.run_id, "turn")


def _find_missing(spans: list[FoundSpan], runs: list[Run]) -> list[str]:
    """Each turn that ended has a root, and no other root is there."""
    roots = {each.span_id for each in spans if each.is_root}
    ended = {_root_of(run): run for run in runs if not run.status.live}
    missing = [f"turn {ended[each].run_id} has no root" for each in ended.keys() - roots]
    return missing + [f"root {each:x} is no turn's" for each in roots - ended.keys()]


def _find_orphans(spans: list[FoundSpan]) -> list[str]:
    """Spans whose parent nobody has told."""
    known = {each.span_id for each in spans}
    return [
        f"{each.name} of run {each.attributes.get('helix.run.id')} is an orphan"
        for each in spans
        if each.parent is not None and each.parent not in known
    ]


def _compare_tokens(spans: list[FoundSpan], entries: list[UsageEntry]) -> list[str]:
    """To the token, what spans count is what the usage log has."""
    counted = {each.span_id: each for each in spans if each.attributes.get("helix.usage.counted")}
    told = sum(int(each.attributes["gen_ai.usage.input_tokens"]) for each in counted.values())
    kept = sum(each.tokens.prompt for each in entries if isinstance(each, TokenUsageEntry))
    return [] if told == kept else [f"spans count {told} tokens, the usage log {kept}"]


async def _read_all_runs(backends: Backends) -> tuple[list[Run], list[UsageEntry]]:
    """All turns and what they used, of sub-agents, too."""
    runs: list[Run] = []
    entries: list[UsageEntry] = []
    cursor: str | None = None
    while True:
        page = await backends.sessions.list_sessions(SessionQuery(limit=200, cursor=cursor))
        for each in page.sessions:
            runs += await _read_runs(backends, each.session_id)
            entries += await backends.usage.get_entries(each.session_id)
        cursor = page.next_cursor
        if cursor is None:
            return runs, entries


async def _read_runs(backends: Backends, session_id: str) -> list[Run]:
    found: list[Run] = []
    cursor: str | None = None
    while True:
        page = await backends.sessions.list_runs(session_id, limit=200, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
