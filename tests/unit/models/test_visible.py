"""Text of strangers, as a terminal and a page may show it."""

import pytest

from helix_temporal.models.visible import make_visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;renamed\x07", r"\x1b]0;renamed\x07"),
        ("line\nline\r\n\tend", r"line\nline\r\n\tend"),
        ("gpj.\u202etxt", r"gpj.\u202etxt"),
        ("\u2066isolated\u2069", r"\u2066isolated\u2069"),
        ("two\u2028lines\x85three", r"two\u2028lines\x85three"),
        ("pay\u200bpal\ufeff", r"pay\u200bpal\ufeff"),
        ("a\U000e0041", r"a\U000e0041"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_what_would_act_or_hide_is_written_out(text: str, shown: str) -> None:
    """A name must not clear the screen, add a row to a table, or read backwards."""
    assert make_visible(text) == shown


@pytest.mark.parametrize("text", ["Grüße, 世界", "👩‍👩‍👧 family", "می‌خواهم", r"C:\new", "", "café"])
def test_what_people_write_stays(text: str) -> None:
    """Joiners are part of emoji and of Persian; combining accents are text."""
    assert make_visible(text) == text


def test_text_of_several_lines_keeps_them() -> None:
    """A message is read as it was written; only what acts is written out."""
    assert make_visible("one\r\ntwo\n\tthree\rover\x1b[2J", lines=True) == "one\ntwo\n\tthree\\rover\\x1b[2J"
