"""Text of strangers on a terminal or a page: what would act, hide or reorder is written out instead."""

import re
from typing import Final

_HIDDEN: Final = (
    "\x00-\x1f\x7f-\x9f"  # controls: escapes move the cursor, colour, rename the terminal's window
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # nothing is seen of them
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # marks and overrides of direction, line ends
    "\ufff9-\ufffb\ud800-\udfff"  # annotations; halves of a pair, which no terminal can be sent
    "\U000e0000-\U000e007f"  # tags: a second text that is invisible
)
_ONE_LINE: Final = re.compile(f"[{_HIDDEN}]")
_LINES: Final = re.compile(f"(?![\n\t])[{_HIDDEN}]")


def make_visible(text: str, *, lines: bool = False) -> str:
    r"""The text with control characters, overrides of direction and invisible characters written out.

    An escape is shown as ``\x1b``, an override as ``\u202e``, a line end as ``\n``.  Joiners stay, as scripts
    and emoji need them.  For people only: a backslash of the text's own is not told apart.

    Args:
        text: As it is stored.
        lines: Text of several lines: line ends and tabs stay; ``\r\n`` is a line end.
    """
    if lines:
        return _LINES.sub(_write_out, text.replace("\r\n", "\n"))
    return _ONE_LINE.sub(_write_out, text)


def _write_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
