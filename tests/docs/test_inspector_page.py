"""The page of the inspector says what the command and the code do."""

import re
from typing import Final

import typer
from typer.main import get_command

from helix_temporal.cli.inspect import inspect
from helix_temporal.inspector import ACTIONS
from helix_temporal.inspector.live import MAX_STREAMS, MAX_STREAMS_OF_VIEWER, NEW_TURNS
from helix_temporal.inspector.pages import ROUTES
from helix_temporal.inspector.pages.conversation import TURNS
from helix_temporal.inspector.pages.sessions import PAGE
from helix_temporal.views.thread_parts import MAX_MESSAGES
from tests.docs._pages import ROOT

TEXT: Final = (ROOT / "docs" / "inspector.md").read_text()
NUMBERS: Final = {10: "ten", 20: "20", 50: "50", 500: "500"}
SHOWN_WITH_OTHERS: Final = {"open": "Sessions", "turn": "Conversation", "message": "Conversation"}


def test_every_option_of_the_command_is_on_the_page() -> None:
    """An option that is not there is found by nobody who reads before they try."""
    app = typer.Typer(add_completion=False)
    app.command()(inspect)
    known = {name for each in get_command(app).params for name in each.opts} - {"--help"}
    assert set(re.findall(r"^\| `(--[a-z-]+)", TEXT, re.MULTILINE)) == known


def test_every_page_is_on_the_page() -> None:
    """The table is how somebody learns what there is to see."""
    rows = re.findall(r"^\| ([A-Z][\w ,]+) \|", TEXT.partition("## What it shows")[2], re.MULTILINE)
    named = {name.strip().lower() for row in rows for name in row.split(",")}
    shown = {SHOWN_WITH_OTHERS.get(each.name, each.name).lower() for each in ROUTES}
    assert {each.replace("calls", "tool calls") for each in shown} <= named


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    """Who plans for more than 20 viewers of a session reads them there."""
    limits = TEXT.partition("## Limits")[2]
    assert (
        f"at most {NUMBERS[TURNS]} turns and {MAX_MESSAGES} messages, a list {NUMBERS[PAGE]} sessions"
        in limits
    )
    assert f"At most {NUMBERS[MAX_STREAMS_OF_VIEWER]} conversations" in limits
    assert f"by a viewer, {NUMBERS[MAX_STREAMS]} by all" in limits
    assert f"behind by more than {NUMBERS[NEW_TURNS]} turns" in limits


def test_every_action_is_on_the_page() -> None:
    """Rights are given by these words."""
    said = TEXT.partition("* `may` says")[2].partition("\n")[0]
    assert {each for each in ACTIONS if f"`{each}`" in said} == ACTIONS
