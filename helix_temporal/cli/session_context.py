"""``helix-temporal session context``: what the model was given in a step."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from helix_temporal.agents import Agent
from helix_temporal.cli._output import (
    AsJson,
    format_number,
    print_facts,
    print_heading,
    print_output,
    print_text,
)
from helix_temporal.cli._session_reads import SessionId, read_sessions
from helix_temporal.models.amounts import NOTHING
from helix_temporal.views import SessionViews
from helix_temporal.views.models import ContextPart, ModelContext


def context(
    session_id: SessionId,
    *,
    turn: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of this turn; by default the newest.", show_default=False),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of this step of it; by default the last.", show_default=False),
    ] = None,
    message: Annotated[
        int | None,
        typer.Option(
            "--message",
            metavar="POSITION",
            min=0,
            help="Of the step that gave the message at this position.",
            show_default=False,
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE[:NAME]", help="Where the agents are, for instructions and tools."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the model was given in one step: instructions, tools, summary, messages, with tokens each.

    The agents' modules are looked for in this directory and on PYTHONPATH; without them the instructions and
    tools are left out.
    """
    if message is not None and (turn is not None or step is not None):
        raise typer.BadParameter("--message names the step; --turn and --step would name another")
    known = _import_agents(agents or ())

    async def read(views: SessionViews) -> ModelContext:
        position = message
        if position is None:
            position = await views.find_answer(session_id, turn, step)
        return await views.get_context(session_id, position)

    print_output(read_sessions(read, agents=known), _print_context, as_json=as_json)


def _import_agents(names: Sequence[str]) -> list[Agent]:
    if not names:
        return []
    # Not at the top: it brings the worker.
    from helix_temporal.cli.worker import load_agents  # noqa: PLC0415

    sys.path.insert(0, str(Path.cwd()))
    return load_agents(names)


def _print_context(found: ModelContext) -> None:
    tokens = found.provider_tokens
    print_facts(
        [
            ("session", found.session_id),
            ("turn", f"{found.turn or NOTHING}, step {found.step or NOTHING}, answer #{found.answer}"),
            ("agent", found.agent or NOTHING),
            ("model", found.model or NOTHING),
            (
                "tokens",
                NOTHING if tokens is None else f"{tokens.input:,} in, {tokens.cached:,} of them cached",
            ),
            ("recorded", "by the step" if found.recorded else "no: worked out by the agent as it is now"),
            (
                "left out",
                f"{found.left_out:,} messages before #{found.first}" if found.left_out else "nothing",
            ),
        ]
    )
    for note in found.notes:
        print_text(f"note: {note}")
    for part in found.parts:
        print_text("")
        _print_part(part)


def _print_part(part: ContextPart) -> None:
    names = [part.kind, part.role, part.name, "" if part.position is None else f"#{part.position}"]
    about = "≈ " if part.estimated else ""
    print_heading(" · ".join([*filter(None, names), f"{about}{format_number(part.tokens)} tokens"]))
    if part.text:
        print_text(part.text, indent=2)
    if part.cut:
        print_text(f"… {part.cut:,} more characters", indent=2)
