"""What commands print for people, and for programs."""

from decimal import Decimal

import pytest

from helix_temporal.cli._output import (
    Progress,
    Table,
    format_number,
    format_time,
    print_facts,
    print_text,
)
from helix_temporal.models.amounts import format_cost, format_duration


def test_columns_are_aligned_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets plain text, which `cut` and `awk` read; later rows keep the columns of the first."""
    table = Table("id", "count>")
    table.print_rows([["a", 1], ["longer", 1000]])
    table.print_rows([["b", None]])
    assert capsys.readouterr().out == "ID      COUNT\na           1\nlonger   1000\nb           –\n"


def test_characters_that_take_two_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of people are written in many alphabets."""
    Table("user", "count>").print_rows([["世界", 1], ["anna", 20]])
    assert capsys.readouterr().out == "USER  COUNT\n世界      1\nanna     20\n"


def test_a_terminal_cuts_the_last_column_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is cut cannot be copied into the next command."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    Table("session", "title").print_rows([["an-id-of-18-letters", "a title that is long"]])
    assert capsys.readouterr().out.splitlines()[1] == "an-id-of-18-letters  a title t…"


@pytest.mark.parametrize("columns", ["20", "29", "80"])
def test_a_narrow_terminal_damages_neither_numbers_nor_headings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """The mark of cutting stood behind values that were whole: ``RESULTS…``, ``1…``."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    Table("checkpoint", "results>").print_rows([["an-id-of-18-letters", 123_456_789_012]])
    Table("checkpoint", "said").print_rows([["an-id-of-18-letters", "short"]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(each in shown for each in ("RESULTS", " 123456789012\n", "SAID", "  short\n"))


def test_a_name_neither_adds_a_row_nor_acts(capsys: pytest.CaptureFixture[str]) -> None:
    """Titles and ids are a stranger's text."""
    Table("id", "title").print_rows([["a\nb", "\x1b[31m\u202ered"]])
    assert capsys.readouterr().out.splitlines()[1] == r"a\nb  \x1b[31m\u202ered"


def test_nothing_has_no_heading(capsys: pytest.CaptureFixture[str]) -> None:
    """`wc -l` says how many there are, and of none says nothing."""
    Table("id").print_rows([])
    assert capsys.readouterr().out == ""


def test_a_value_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a title holds, it is no other fact."""
    print_facts([("title", "one\nstatus  failed"), ("status", "running"), ("none", None)])
    assert capsys.readouterr().out == "title   one\\nstatus  failed\nstatus  running\nnone\n"


def test_progress_is_told_where_somebody_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that goes into a file says how far it is; a program gets no such lines."""
    silent = Progress("sessions", every=10)
    silent.add(100)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    seen = Progress("sessions", every=10)
    seen.add(9)
    seen.add(16)
    seen.add(2)
    assert capsys.readouterr().err == "  25 sessions\n"


def test_text_is_indented_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A message cannot pretend to be the heading of another turn."""
    print_text("one\nturn 2\x07", indent=2)
    assert capsys.readouterr().out == "  one\n  turn 2\\x07\n"


def test_times_are_utc_with_seconds() -> None:
    """The same on each machine; a time that no calendar has is shown as it is."""
    assert format_time(1_700_000_000_999) == "2023-11-14T22:13:20Z"
    assert (format_time(None), format_time(0)) == ("–", "–")
    assert format_time(10**18) == "1000000000000000000"


def test_numbers_durations_and_costs() -> None:
    """What is not known is a dash, not a zero."""
    assert [format_number(1234567), format_number(None)] == ["1,234,567", "–"]
    assert [format_duration(1234), format_duration(61_000), format_duration(None)] == [
        "1.2 s",
        "1 min 1 s",
        "–",
    ]
    assert [format_cost(Decimal("0.01234")), format_cost(None)] == ["$0.0123", "–"]
