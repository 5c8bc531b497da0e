"""Text of other people, made safe and legible: nothing in it is markup, and nothing of it is hidden."""

import json
import re
import unicodedata
from typing import Final

from markupsafe import Markup, escape
from pydantic import JsonValue

_SHOWN_CONTROLS: Final = frozenset("\n\t")
_FENCE: Final = re.compile(
    r"^```[ \t]*([\w+#.-]{0,20})[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_CODE_OR_BOLD: Final = re.compile(r"`([^`\n]{1,400})`|\*\*(\S(?:[^*\n]{0,400}?\S)?)\*\*")
_HEADING: Final = re.compile(r"^#{1,6} +(\S.{0,300})$")
_BULLET: Final = re.compile(r"^ {0,6}(?:[-*•]|\d{1,3}[.)]) +(?=\S)")
_JSON_KEY: Final = re.compile(r'( *)("(?:[^"\\]|\\.)*")(?=: )')
MAX_PARSED: Final = 200_000
"""Characters of a text that may be JSON; a longer one is shown as it is."""
MAX_COLOURED_LINES: Final = 150
"""Keys of a longer JSON text are not coloured: each is an element of its own on the page."""


def show_text(text: str) -> Markup:
    """The text escaped, with characters that can't be seen, or that turn the others round, named instead."""
    return Markup("").join(_show_character(each) for each in _split_hidden(text))


def show_line(text: str, limit: int = 300) -> Markup:
    """The text in one line, its end left out beyond ``limit`` characters."""
    line = " ".join(text[: limit * 4].split())
    return show_text(line if len(line) <= limit else line[: limit - 1] + "…")


def name_plainly(text: str, limit: int = 80) -> str:
    """A text for a page's title and for labels, which have no elements: hidden characters are replaced."""
    line = " ".join(text[: limit * 4].split())[:limit]
    return "".join("\ufffd" if is_hidden(each) else each for each in line)


def show_prose(text: str) -> Markup:
    """An answer as prose: code blocks, inline code, bold, headings and lists of Markdown; no links or images.

    Whatever isn't one of these stands as it is written.
    """
    shown, done = [], 0
    for fence in _FENCE.finditer(text):
        shown.append(_show_paragraphs(text[done : fence.start()]))
        shown.append(
            Markup('<pre class="code" tabindex="0">{}</pre>').format(show_text(fence[2].rstrip("\n")))
        )
        done = fence.end()
    shown.append(_show_paragraphs(text[done:]))
    return Markup("").join(shown)


def show_json(value: JsonValue) -> Markup:
    """A value as JSON on several lines with its keys marked; a string as it is, unless it holds JSON."""
    if isinstance(value, str):
        read = _read_json(value)
        if read is None:
            return show_text(value)
        value = read
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=False)
    if text.count("\n") > MAX_COLOURED_LINES:
        return show_text(text)
    return Markup("\n").join(_mark_key(line) for line in text.split("\n"))


def _read_json(text: str) -> JsonValue:
    """The object or list that a text holds, as tools give their results; None for any other text."""
    if text[:1] not in ("{", "[") or len(text) > MAX_PARSED:
        return None
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


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


def _show_paragraphs(text: str) -> Markup:
    blocks = [each for each in re.split(r"\n[ \t]*\n", text.strip("\n")) if each.strip()]
    return Markup("").join(_show_block(each.split("\n")) for each in blocks)


def _show_block(lines: list[str]) -> Markup:
    """One paragraph; its headings and runs of list items stand on their own."""
    shown: list[Markup] = []
    plain: list[str] = []
    items: list[str] = []

    def end_plain() -> None:
        if plain:
            shown.append(Markup("<p>{}</p>").format(Markup("\n").join(_show_inline(each) for each in plain)))
            plain.clear()

    def end_items() -> None:
        if items:
            rows = Markup("").join(Markup("<li>{}</li>").format(_show_inline(each)) for each in items)
            shown.append(Markup("<ul>{}</ul>").format(rows))
            items.clear()

    for line in lines:
        heading = _HEADING.match(line)
        bullet = _BULLET.match(line)
        if bullet:
            end_plain()
            marker = line[: bullet.end()].strip()
            items.append(line[bullet.end() :] if marker in "-*•" else f"{marker} {line[bullet.end() :]}")
            continue
        end_items()
        if heading:
            end_plain()
            shown.append(Markup('<p class="heading">{}</p>').format(_show_inline(heading[1])))
        else:
            plain.append(line)
    end_plain()
    end_items()
    return Markup("").join(shown)


def _show_inline(line: str) -> Markup:
    shown, done = [], 0
    for found in _CODE_OR_BOLD.finditer(line):
        shown.append(show_text(line[done : found.start()]))
        form = Markup("<code>{}</code>") if found[1] is not None else Markup("<strong>{}</strong>")
        shown.append(form.format(show_text(found[1] if found[1] is not None else found[2])))
        done = found.end()
    shown.append(show_text(line[done:]))
    return Markup("").join(shown)


def _split_hidden(text: str) -> list[str]:
    """The text in pieces: runs of what can be seen, and hidden characters alone."""
    pieces: list[str] = []
    start = 0
    for place, character in enumerate(text):
        if is_hidden(character):
            pieces += [text[start:place], character]
            start = place + 1
    return [*pieces, text[start:]]


def is_hidden(character: str) -> bool:
    """Whether a reader can't see the character: controls, direction marks, zero-width ones, lone surrogates.

    The joiners of emoji and of Indic scripts are no harm and stay.
    """
    if character < "\x7f":
        return character < " " and character not in _SHOWN_CONTROLS
    if character in "\u200c\u200d":
        return False
    return (
        unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"} or character in "\u2028\u2029\u3164\u115f"
    )


def _show_character(piece: str) -> Markup:
    if len(piece) == 1 and is_hidden(piece):
        return Markup('<span class="hidden-char" title="U+{0:04X}">U+{0:04X}</span>').format(ord(piece))
    return escape(piece)
