"""``helix-temporal inspect``: the page that shows sessions, on this machine."""

import asyncio
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from helix_temporal.agents import Agent
from helix_temporal.cli._store_checks import StoreUse, check_stores
from helix_temporal.cli.worker import load_agents
from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.worker import connect_without_metrics, end_on_sigterm, stop_on_signals

_PORT: Final = 8377


def inspect(
    *,
    host: Annotated[str, typer.Option(help="127.0.0.1, ::1 or localhost: this machine alone.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="0 for any that is free.")
    ] = _PORT,
    open_browser: Annotated[bool, typer.Option("--open", help="Show it in this machine's browser.")] = False,
    allow_actions: Annotated[
        bool,
        typer.Option("--allow-actions", help="Let it approve, answer and stop; otherwise it only shows."),
    ] = False,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE[:NAME]",
            help="Agents, for the instructions and tools that a model was given; may be repeated.",
            show_default=False,
        ),
    ] = None,
    temporal_ui: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Temporal's own page, for links to workflows."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A further name under which a browser asks for it, as through a tunnel; may be repeated.",
        ),
    ] = None,
) -> None:
    """Serve the page that shows sessions, on this machine, until Ctrl-C.

    The link that is printed has a random token in it: whoever has the link can look.  Addresses of the stores
    come from HELIX_… variables, the same as the session workers'.  To look, no worker and no Temporal is
    needed; schedules of maintenance and actions need Temporal.
    """
    end_on_sigterm()
    _import_inspector()
    settings = Settings.from_env(os.environ)
    check_stores(settings, StoreUse.SESSIONS)
    sys.path.insert(0, str(Path.cwd()))
    # Before there is an event loop: a module may run one of its own while it is imported.
    found = load_agents(agents or [])
    asyncio.run(
        _serve(
            settings,
            found,
            host=host,
            port=port,
            open_browser=open_browser,
            actions=allow_actions,
            temporal_ui=temporal_ui,
            hosts=allow_host or [],
        )
    )


def _import_inspector() -> "tuple[Any, Any]":
    """`create_inspector`, and the module that serves it.

    Raises:
        InvalidConfigError: The extra is not installed.
    """
    try:
        from helix_temporal.inspector import create_inspector, server  # noqa: PLC0415 (of an extra)
    except ModuleNotFoundError as error:
        raise InvalidConfigError(
            f"the inspector needs the package {error.name}: pip install 'helix-temporal[inspector]'"
        ) from error
    return create_inspector, server


async def _serve(
    settings: Settings,
    agents: list[Agent],
    *,
    host: str,
    port: int,
    open_browser: bool,
    actions: bool,
    temporal_ui: str | None,
    hosts: list[str],
) -> None:
    create_inspector, server = _import_inspector()
    stop = stop_on_signals()
    listening = server.bind(host, port)
    client, plugin = await connect_without_metrics(settings, lazy=True)
    backends = plugin.backends
    try:
        app = create_inspector(
            backends,
            client=SessionClient(client, stores=backends, streams=backends.streams),
            agents={agent.name: agent for agent in agents},
            hosts=hosts,
            actions=actions,
            temporal=client,
            temporal_ui=temporal_ui,
        )
        async with server.serving(app, listening):
            link = server.link_to(app, listening)
            print(link, flush=True)
            print("Ctrl-C stops it.", file=sys.stderr, flush=True)
            if open_browser:
                await asyncio.to_thread(webbrowser.open, link)
            await stop.wait()
    finally:
        listening.close()
        await backends.close()
