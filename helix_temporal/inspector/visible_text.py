"""Text of other people, made safe and legible: nothing in it is markup, and nothing of it is hidden."""

import json
import re
from itertools import groupby
from typing import Final, Literal

from markupsafe import Markup, escape
from pydantic import JsonValue

from helix_temporal.models.base import parse_json_text

_CONTROLS: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
_DIRECTIONS: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_WITHOUT_WIDTH: Final = (
    r"\xad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U00013430-\U0001343f\U000e0000-\U000e007f"
)
_FILLERS: Final = r"\u115f\u1160\u2800\u3164\uffa0"
_OF_NOBODY: Final = r"\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"
_HIDDEN: Final = re.compile(f"([{_CONTROLS}{_DIRECTIONS}{_WITHOUT_WIDTH}{_FILLERS}{_OF_NOBODY}]+)")
"""What a reader can't see.  The joiners of emoji and of Indic scripts are no harm and are not among them."""
MAX_NAMED: Final = 200
"""Hidden characters of one text that are named; the others are told by a sign, as each name is an element."""
_FENCE: Final = re.compile(r"^```[^\n`]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE_OR_BOLD: Final = re.compile(r"`([^`\n]{1,400})`|\*\*(\S(?:[^*\n]{0,400}?\S)?)\*\*")
_HEADING: Final = re.compile(r"^#{1,6} +(\S.{0,300})$")
_BULLET: Final = re.compile(r"^ {0,6}(?:[-*•]|\d{1,3}[.)]) +(?=\S)")
_JSON_KEY: Final = re.compile(r'( *)("(?:[^"\\]|\\.)*")(?=: )')
MAX_PARSED: Final = 200_000
"""Characters of a text that may be JSON; a longer one is shown as it is."""
MAX_COLOURED_LINES: Final = 150
"""Keys of a longer JSON text are not coloured: each is an element of its own on the page."""


_NAMED: Final = Markup('<span class="hidden-char" title="U+{0:04X}">U+{0:04X}</span>')


def show_text(text: str) -> Markup:
    """The text escaped, with characters that can't be seen, or that turn the others round, named instead."""
    plain = text.replace("\r\n", "\n")
    if _HIDDEN.search(plain) is None:
        return escape(plain)
    shown: list[Markup] = []
    left = MAX_NAMED
    for place, piece in enumerate(_HIDDEN.split(plain)):
        if place % 2:
            shown += [_NAMED.format(ord(each)) for each in piece[:left]]
            shown.append(escape("\ufffd" * len(piece[left:])))
            left = max(0, left - len(piece))
        else:
            shown.append(escape(piece))
    return Markup("").join(shown)


def show_line(text: str, limit: int = 300) -> Markup:
    """The text in one line, its end left out beyond ``limit`` characters."""
    line = " ".join(text[: limit * 4].split())
    return show_text(line if len(line) <= limit else line[: limit - 1] + "…")


def name_plainly(text: str, limit: int = 80) -> str:
    """A text for a page's title and for labels, which have no elements: hidden characters are replaced."""
    line = " ".join(text[: limit * 4].split())[:limit]
    return _HIDDEN.sub("\ufffd", line)


def show_prose(text: str) -> Markup:
    """An answer as prose: code blocks, inline code, bold, headings and lists of Markdown; no links or images.

    Whatever isn't one of these stands as it is written.
    """
    shown, done = [], 0
    for fence in _FENCE.finditer(text):
        shown.append(_write_blocks(text[done : fence.start()]))
        shown.append(f'<pre class="code" tabindex="0">{_escape(fence[1].rstrip(chr(10)))}</pre>')
        done = fence.end()
    shown.append(_write_blocks(text[done:]))
    return Markup("".join(shown))  # noqa: S704 - elements of ours around text that was escaped


def show_json(value: JsonValue) -> Markup:
    """A value as JSON on several lines with its keys marked; a string as it is, unless it holds JSON."""
    if isinstance(value, str):
        read = parse_json_text(value) if len(value) <= MAX_PARSED else None
        if read is None:
            return show_text(value)
        value = read
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=False)
    if text.count("\n") > MAX_COLOURED_LINES:
        return show_text(text)
    return Markup("\n").join(_mark_key(line) for line in text.split("\n"))


def summarise_json(value: JsonValue, limit: int = 110) -> Markup:
    """A value in one short line: ``order: A-7, lines: [3]`` for an object, text as it is."""
    if isinstance(value, dict):
        return show_line(", ".join(f"{key}: {_summarise_value(each)}" for key, each in value.items()), limit)
    return show_line("" if value is None else _summarise_value(value), limit)


def _summarise_value(value: JsonValue) -> str:
    if isinstance(value, str):
        return value[:400]
    if isinstance(value, list):
        return f"[{len(value)}]"
    if isinstance(value, dict):
        return f"{{{len(value)}}}" if value else "{}"
    return json.dumps(value)


def _mark_key(line: str) -> Markup:
    found = _JSON_KEY.match(line)
    if found is None:
        return show_text(line)
    form = Markup('{}<span class="key">{}</span>{}')
    return form.format(found[1], show_text(found[2]), show_text(line[found.end() :]))


def _escape(text: str) -> str:
    return str(show_text(text))


def _write_blocks(text: str) -> str:
    """Paragraphs, headings and lists as HTML."""
    blocks = [each for each in re.split(r"\n[ \t]*\n", text.strip("\n")) if each.strip()]
    return "".join(_write_block(each.split("\n")) for each in blocks)


def _write_block(lines: list[str]) -> str:
    """What stands between two empty lines; its headings and runs of list items stand on their own."""
    pieces = [(_find_kind(line), line) for line in lines]
    groups = groupby(pieces, key=lambda piece: piece[0])
    return "".join(_WRITERS[kind]([line for _, line in group]) for kind, group in groups)


def _find_kind(line: str) -> Literal["heading", "item", "plain"]:
    if _BULLET.match(line):
        return "item"
    return "heading" if _HEADING.match(line) else "plain"


def _write_headings(lines: list[str]) -> str:
    texts = (line.lstrip("#").lstrip(" ") for line in lines)
    return "".join(f'<p class="heading">{_write_inline(text)}</p>' for text in texts)


def _write_items(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{_write_inline(_strip_bullet(line))}</li>' for line in lines)}</ul>"


def _write_plain(lines: list[str]) -> str:
    text = "\n".join(lines)
    if "`" not in text and "**" not in text:
        return f"<p>{_escape(text)}</p>"
    return f"<p>{chr(10).join(_write_inline(line) for line in lines)}</p>"


_WRITERS: Final = {"heading": _write_headings, "item": _write_items, "plain": _write_plain}


def _strip_bullet(line: str) -> str:
    """An item without its sign; a number stays, as the list is drawn without numbers."""
    found = _BULLET.match(line)
    assert found is not None
    sign = found[0].strip()
    return line[found.end() :] if sign in {"-", "*", "•"} else f"{sign} {line[found.end() :]}"


def _write_inline(line: str) -> str:
    if "`" not in line and "**" not in line:
        return _escape(line)
    shown, done = [], 0
    for found in _CODE_OR_BOLD.finditer(line):
        shown.append(_escape(line[done : found.start()]))
        is_code = found[1] is not None
        shown.append(
            f"<code>{_escape(found[1])}</code>" if is_code else f"<strong>{_escape(found[2])}</strong>"
        )
        done = found.end()
    shown.append(_escape(line[done:]))
    return "".join(shown)
