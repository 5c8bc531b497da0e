"""Text of models, users and tools on a page: it is never markup, and hides nothing."""

import html
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.inspector.visible_text import (
    MAX_COLOURED_LINES,
    MAX_NAMED,
    name_plainly,
    show_json,
    show_line,
    show_prose,
    show_text,
    summarise_json,
)

OWN = re.compile(
    r'</?(?:p|ul|li|strong|code|pre|span)>|<p class="heading">|<pre class="code" tabindex="0">'
    r'|<span class="key">|<span class="hidden-char" title="U\+[0-9A-F]{4,6}">'
)
HOSTILE = st.text(alphabet=st.sampled_from("<>&\"'`*#-1. \n\t\\{}[]:=/a\u202e\u200b\x1b\x00é")) | st.text()


@given(HOSTILE)
def test_no_text_becomes_markup_of_its_own(text: str) -> None:
    """Whatever a model writes: only elements of ours are on the page."""
    shown = show_text(text) + show_line(text) + show_prose(text) + show_json({text: [text]})
    assert not re.search(r"[<>]", OWN.sub("", str(shown)))


@given(st.text(alphabet="ab <>&\"'*`\n"))
def test_text_is_shown_as_it_is(text: str) -> None:
    """Nothing is lost or changed on the way to the page."""
    assert html.unescape(str(show_text(text))) == text


@pytest.mark.parametrize(
    ("hidden", "name"),
    [
        ("\u202e", "U+202E"),
        ("\x1b", "U+001B"),
        ("\u200b", "U+200B"),
        ("\U000e0041", "U+E0041"),
        ("\ud800", "U+D800"),
    ],
)
def test_what_a_reader_cannot_see_is_named(hidden: str, name: str) -> None:
    """A turned-round name, a colour code, an instruction in invisible letters: people have to see them."""
    shown = str(show_text(f"a{hidden}b"))
    assert name in shown
    assert hidden not in shown


def test_all_that_unicode_calls_invisible_is_named() -> None:
    """Instructions in letters that nobody sees are how models are misled: none of them may be forgotten."""
    hidden = {
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Co"}
    }
    seen_all_the_same = {each for each in hidden if "ARABIC" in unicodedata.name(each, "")} - {"\u061c"}
    marks = set("\u06dd\u070f\u08e2\U000110bd\U000110cd")  # drawn below the digits or letters behind them
    left = hidden - seen_all_the_same - marks - set("\n\t\u200c\u200d")
    assert {each for each in left if str(show_text(each)) == each} == set()


def test_thousands_of_hidden_characters_are_few_elements() -> None:
    """A message full of them would else be a page that no browser shows."""
    shown = str(show_text("a\u200b" * 100_000))
    assert shown.count("<span") == MAX_NAMED
    assert shown.count("\ufffd") == 100_000 - MAX_NAMED


def test_line_ends_of_windows_are_line_ends() -> None:
    """A carriage return before each of them is nothing to be told."""
    assert str(show_text("a\r\nb")) == "a\nb"
    assert "U+000D" in show_text("a\rb")


@pytest.mark.parametrize("text", ["👩‍🚀", "नमस्ते", "שלום", "naïve", "日本語\tx"])
def test_scripts_of_the_world_stay_as_they_are(text: str) -> None:
    """Joiners in emoji and in words are no tricks."""
    assert str(show_text(text)) == text


def test_an_answer_is_shown_as_prose() -> None:
    """Models write Markdown: people read its lists, code and emphasis, not its signs."""
    shown = str(show_prose("# Done\nSend **both**:\n- lamp `L1`\n- label\n\n```py\nx = 1 < 2\n```\nBye"))
    assert '<p class="heading">Done</p>' in shown
    assert "<strong>both</strong>" in shown
    assert "<li>lamp <code>L1</code></li><li>label</li>" in shown
    assert '<pre class="code" tabindex="0">x = 1 &lt; 2</pre>' in shown


def test_links_and_images_are_not_made() -> None:
    """A link in an answer may lead anywhere, and an image tells its host that somebody reads."""
    shown = str(show_prose("[here](javascript:alert(1)) ![x](https://evil.example/p.png)"))
    assert "<a" not in shown
    assert "<img" not in shown
    assert "[here](javascript:alert(1))" in shown


def test_a_fence_that_is_not_closed_ends_with_the_text() -> None:
    """An answer that was cut in the middle of its code."""
    assert str(show_prose("```\na\n\nb")) == '<pre class="code" tabindex="0">a\n\nb</pre>'


def test_a_long_line_is_cut() -> None:
    """One megabyte in a title is one line all the same."""
    shown = show_line("word " * 300_000, 40)
    assert len(shown) == 40
    assert shown.endswith("…")


def test_a_title_has_no_elements_and_no_hidden_characters() -> None:
    """A browser's tab shows text alone, also where it is turned round."""
    assert name_plainly("a\u202eb\n c") == "a\ufffdb c"


def test_keys_of_long_json_are_not_marked() -> None:
    """Each would be an element of the page: thousands of them make it slow."""
    assert '<span class="key">' in show_json({"a": 1})
    assert "<span" not in show_json({f"k{n}": n for n in range(MAX_COLOURED_LINES + 1)})


def test_a_result_that_is_json_in_a_text_is_laid_out() -> None:
    """Tools give their results as text: people read its fields, not one endless line."""
    assert show_json('{"a":[1]}') == show_json({"a": [1]})
    assert str(show_json("{not json")) == "{not json"
    assert str(show_json("[" * 100_000)).startswith("[[")


def test_a_summary_says_what_is_in_an_object() -> None:
    """The line of a folded call."""
    shown = summarise_json({"order": "A-7", "lines": [1, 2, 3], "dry": True, "who": {"id": 1}, "x": None})
    assert str(shown) == "order: A-7, lines: [3], dry: true, who: {1}, x: null"


@pytest.mark.parametrize(
    "text", ["**" * 50_000, "`" * 100_000, "```\n" * 30_000, "#" * 100_000, "- " * 50_000]
)
def test_no_text_takes_long(text: str) -> None:
    """A pattern that goes back and forth would let one message stop the server."""
    assert show_prose(text)  # with such a pattern it takes hours, and the test's time runs out
