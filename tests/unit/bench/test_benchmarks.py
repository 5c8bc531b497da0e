"""The benchmarks run and tell what they must; their figures are nobody's business here."""

import math
from dataclasses import fields
from pathlib import Path

import orjson
import pytest

from bench.__main__ import BENCHMARKS
from bench._lab import TINY, Lab, Words
from bench._report import Row, compared, told, write
from helix_temporal.settings import Settings


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
async def test_a_benchmark_yields_well_formed_rows(name: str, settings: Settings, postgres_dsn: str) -> None:
    """A benchmark that broke unnoticed would be found out on the day its figure is needed."""
    said: list[str] = []
    servers = settings.model_copy(update={"postgres_dsn": postgres_dsn})

    rows = await BENCHMARKS[name](Lab(servers, sizes=TINY, say=said.append, peers=False))

    assert rows
    assert said, "a long run must show how far it is"
    assert all(row.name and (row.unit or row.value is None) for row in rows)
    assert all(row.note if row.value is None else math.isfinite(row.value) for row in rows)
    assert all((row.met is None) == (row.target == "") for row in rows)
    assert len({row.name for row in rows}) == len(rows)


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that is slow for a while is slow for both: the round is what can be compared."""
    row = compared("x", "ms", [1.0, 30.0, 3.0], [1.0, 20.0, 1.0], at_most=1.5)

    assert (row.value, row.floor, row.ratio) == (3.0, 1.0, 1.5)
    assert (row.target, row.met, row.spread) == ("≤ 1.5× floor", True, (1.0, 30.0))


def test_a_missed_target_is_told_as_missed() -> None:
    """A report that hides a losing figure is worth nothing."""
    assert told("x", "s", [4.0], at_most=3.0).met is False
    assert compared("x", "turns/s", [80.0], [100.0], at_least=0.85).met is False


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    """Some figures are told beside the others, to explain them."""
    row = told("x", "B", [1.0])

    assert (row.target, row.met) == ("", None)


def test_the_file_has_one_object_a_row_and_the_machine_beside_them(tmp_path: Path) -> None:
    """Programs read it: the names of its fields are fixed."""
    write(tmp_path / "build" / "bench.json", [told("x", "ms", [1.0], at_most=2.0)], {"quick": True})

    found = orjson.loads((tmp_path / "build" / "bench.json").read_bytes())

    assert set(found) == {"versions", "cpu", "kernel", "quick", "rows"}
    assert set(found["rows"][0]) == {field.name for field in fields(Row)}
    assert {"name", "value", "unit", "floor", "ratio", "target", "met"} <= set(found["rows"][0])


def test_text_is_the_same_for_the_same_seed() -> None:
    """Two runs on two days compare only if they move the same bytes."""
    assert Words(7).text(500) == Words(7).text(500)
    assert len(Words(7).text(500)) == 500
