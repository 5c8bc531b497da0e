"""Progress of long work."""

from typing import Any

import pytest

from helix_temporal.cli import _progress
from helix_temporal.cli._progress import ProgressLine


class _Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    found = _Clock()
    monkeypatch.setattr(_progress, "time", found)
    return found


def show_each_second(line: ProgressLine, clock: Any, seconds: int) -> None:
    """A call each second, as many as said."""
    for second in range(1, seconds + 1):
        clock.now = float(second)
        line.show("read", second * 1000, 60_000, "messages")


def test_short_work_says_nothing(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Most sessions are through before anybody wonders."""
    show_each_second(ProgressLine(terminal=False), clock, 1)
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Not one for each message: the log of a night's backups is read by people."""
    show_each_second(ProgressLine(terminal=False), clock, 15)
    assert capsys.readouterr().err == "read: 2,000 of 60,000 messages\nread: 12,000 of 60,000 messages\n"


def test_a_terminal_keeps_one_line_which_goes_at_the_end(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows is not written behind half a line."""
    line = ProgressLine(terminal=True)
    show_each_second(line, clock, 3)
    line.clear()
    text, shown = "read: 3,000 of 60,000 messages", capsys.readouterr().err
    assert shown.endswith(f"\r{text}\r{' ' * len(text)}\r")
    assert "\n" not in shown
