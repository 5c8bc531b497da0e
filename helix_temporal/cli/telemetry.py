"""``helix-temporal telemetry``: tell turns again whose spans were lost."""

import asyncio
import os
from datetime import timedelta
from typing import Annotated, Any

import typer

from helix_temporal._setting_rules import parse_duration
from helix_temporal.activities.trace_backfill import BackfillSummary, TraceBackfill
from helix_temporal.backends import Backends
from helix_temporal.cli._ids import check_ids
from helix_temporal.cli._output import AsJson, print_output
from helix_temporal.cli._store_checks import check_session_store
from helix_temporal.cli._styles import echo_styled
from helix_temporal.cli.outputs import Backfill
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.errors import HelixError, InvalidConfigError, StoreUnavailableError
from helix_temporal.models.visible import make_visible
from helix_temporal.settings import Settings
from helix_temporal.telemetry.emitter import Emitter, make_provider
from helix_temporal.telemetry.spans import Span

_AT_ONCE = 512
"""Spans after which the exporter is waited for: as many as its queue surely holds."""
_PATIENCE = 30.0


def backfill(
    *,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Turns that ended within this time: 30m, 2h, 7d.")
    ],
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Of this session alone.", callback=check_ids("session id")),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell turns again from the stores: the same spans under the same ids.

    A worker that is killed loses the spans that it had not exported.  What the collector has already, it
    gets once more.  Texts of conversations are not told.  It ends as soon as the collector takes nothing.
    Exit status 7 if spans could not be exported, 3 if a session could not be read, which is then named; what
    a sampler leaves out is not to be.
    """
    try:
        within = parse_duration(since)
    except ValueError as error:
        raise InvalidConfigError(f"--since: {error}") from None
    found, sampled = asyncio.run(_tell(Settings.from_env(os.environ), within, session))
    told = Backfill(
        sessions=found.sessions,
        turns=found.turns,
        abandoned=found.abandoned,
        under_way=found.under_way,
        untraced=found.untraced,
        failed=found.failed,
        spans=found.spans,
        unsampled=found.spans - sampled,
    )
    print_output(told, _show_counts, as_json=as_json)
    if found.failed:
        raise typer.Exit(ExitStatus.PARTLY)


def _show_counts(told: Backfill) -> None:
    for name, number in (
        ("sessions", told.sessions),
        ("turns told", told.turns),
        ("  of them abandoned", told.abandoned),
        ("turns under way", told.under_way),
        ("turns without a trace", told.untraced),
        ("sessions that failed", told.failed),
        ("spans", told.spans),
        ("  of them not sampled", told.unsampled),
    ):
        typer.echo(f"{name:<32}{number:>10,}")


async def _tell(settings: Settings, within: timedelta, session_id: str | None) -> tuple[BackfillSummary, int]:
    """Tell the turns; what was told, and how many of the spans were sampled."""
    check_session_store(settings)
    exporter = _CountingExporter(_make_exporter())
    backends = Backends(settings)
    try:
        sessions = backends.sessions
        outlet = _Outlet(Emitter(make_provider(exporter), owned=True), exporter)
        try:
            work = TraceBackfill(sessions, backends.usage, outlet.emit, _print_failure)
            since_ms = await sessions.now() - int(within.total_seconds() * 1000)
            found = await work.tell_since(since_ms, session_id)
        finally:
            await asyncio.to_thread(outlet.close)
    finally:
        await backends.close()
    if exporter.failed or exporter.exported < outlet.sampled:
        raise outlet.lost_spans_error()
    return found, outlet.sampled


def _print_failure(session_id: str, error: HelixError) -> None:
    echo_styled(make_visible(f"{session_id}: {error}"), fg="red", err=True)


def _make_exporter() -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfigError(f"{error}; install helix-temporal[otel]") from None
    return OTLPSpanExporter()


class _Outlet:
    """Gives spans to an emitter, no faster than they are exported."""

    def __init__(self, emitter: Emitter, exporter: "_CountingExporter") -> None:
        self._emitter, self._exporter = emitter, exporter
        self._emitted = 0
        self._patience = _PATIENCE

    @property
    def sampled(self) -> int:
        """Spans so far that no sampler has left out, their worker's or this process's."""
        return self._emitted - self._emitter.unsampled

    def emit(self, span: Span) -> None:
        """Emit a span; waits once in a while.

        Raises:
            StoreUnavailableError: Of the spans since it last waited the collector has taken none.
        """
        self._emitter.emit(span)
        if span.ref.sampled:
            self._emitted += 1
            if self._emitted % _AT_ONCE == 0:
                self._flush()

    def _flush(self) -> None:
        exported, failed = self._exporter.exported, self._exporter.failed
        flushed = self._emitter.flush(_PATIENCE)
        refused = self._exporter.failed > failed
        if self._exporter.exported == exported and (refused or not flushed):
            self._patience = 0.0
            raise self.lost_spans_error()

    def lost_spans_error(self) -> StoreUnavailableError:
        """Says how many spans have arrived, and what to do."""
        return StoreUnavailableError(
            f"{self._exporter.exported} of {self.sampled} spans were exported; does the collector answer? "
            "OTEL_EXPORTER_OTLP_ENDPOINT says where it is. Run this again: spans keep their ids"
        )

    def close(self) -> None:
        """Wait for the rest, unless the collector has taken nothing."""
        self._emitter.close(self._patience)


class _CountingExporter:
    """An exporter of the SDK that counts what the real one could do."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.exported = self.failed = 0

    def export(self, spans: Any) -> Any:
        """Export, and count."""
        result = self._inner.export(spans)
        if result.name == "SUCCESS":
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """As the real one."""
        return bool(self._inner.force_flush(timeout_millis))

    def shutdown(self) -> None:
        """As the real one."""
        self._inner.shutdown()
