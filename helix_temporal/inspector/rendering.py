"""HTML from data: one Jinja2 environment that escapes everything, with the filters of the pages."""

import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from helix_temporal.inspector import bars, formats, labels, marks, visible_text
from helix_temporal.models import amounts
from helix_temporal.views import words

TEMPLATES: Final = Path(__file__).parent / "templates"

_FILTERS: Final = {
    "time": formats.format_time,
    "ago": lambda millis: formats.format_ago(millis, read_clock()),
    "waited": lambda millis: formats.format_waited(millis, read_clock()),
    "iso": formats.format_iso,
    "clock": formats.format_clock,
    "duration": amounts.format_duration,
    "count": formats.format_count,
    "tokens": formats.format_tokens,
    "cost": amounts.format_cost,
    "bytes": formats.format_bytes,
    "text": visible_text.show_text,
    "line": visible_text.show_line,
    "plain": visible_text.name_plainly,
    "prose": visible_text.show_prose,
    "json": visible_text.show_json,
    "brief": visible_text.summarise_json,
}
_GLOBALS: Final = {
    "count_of": formats.count_of,
    "share": formats.format_share,
    "bars": bars,
    "labels": labels,
    "marks": marks,
    "words": words,
}


@cache
def get_environment() -> Environment:
    """The one environment: it escapes all values, and an unknown name in a template is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    environment.globals |= _GLOBALS
    return environment


def compile_templates() -> None:
    """Compile all templates, so that no viewer waits for it."""
    for name in get_environment().list_templates():
        get_environment().get_template(name)


def render_template(name: str, /, **values: Any) -> str:
    """A template with values."""
    return get_environment().get_template(name).render(**values)


def render_macro(name: str, macro: str, /, *arguments: Any, **values: Any) -> Markup:
    """What one macro of a template gives: a fragment of a page, as the live stream sends it.

    Args:
        name: Of the template.
        macro: Its macro's name.
        arguments: Of the macro.
        values: What the template's top level reads, such as ``page``.
    """
    module = get_environment().get_template(name).make_module(values)
    return Markup(getattr(module, macro)(*arguments))  # noqa: S704 - a macro's output is escaped already


def read_clock() -> int:
    """The present time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
