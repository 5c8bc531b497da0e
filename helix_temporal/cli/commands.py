"""All commands of ``helix-temporal``, as one table: none is imported before it is called."""

from typing import Annotated, Final

import typer

from helix_temporal.cli._lazy import PLAIN, Row, make_group

COMMANDS: Final = {
    "cleanup": Row("cleanup:cleanup", "Clean up the session store, as the schedule does."),
    "dev": Row("dev:dev", "Start Temporal, PostgreSQL, Valkey and S3 on this machine."),
    "doctor": Row("doctor:doctor", "Check stores, rights, clocks, tables, schedules and versions."),
    "health": Row("health:health", "Ask the worker on this machine how it is."),
    "inspect": Row("inspect:inspect", "Serve the page that shows sessions, on this machine."),
    "maintenance": Row("maintenance:maintenance", "Create the schedules of maintenance, and serve them."),
    "migrate": Row("migrate:migrate", "Bring the tables in PostgreSQL to the newest version."),
    "sweep": Row("sweep:sweep", "Archive all hot threads once, without Temporal."),
    "worker": Row("worker:worker", "Serve sessions of agents until SIGTERM or Ctrl-C."),
}
SESSION: Final = {
    "list": Row("session:list_sessions", "List sessions, newest change first."),
    "show": Row("session:show", "Print where a session stands, and who is waited for."),
    "messages": Row("session_messages:messages", "Print a conversation by turns; --follow shows it live."),
    "turns": Row("session_messages:turns", "List the turns of a session, newest last."),
    "calls": Row("session_calls:calls", "Find tool calls across sessions, such as those that failed."),
    "context": Row("session_context:context", "Print what the model was given in a step."),
    "state": Row("session_state:state", "Print the state, at a checkpoint or now, or a difference."),
    "checkpoints": Row("session_state:checkpoints", "List the checkpoints of a session, newest first."),
    "tree": Row("session:tree", "Print a session with its sub-agents, tokens and cost."),
    "usage": Row("session:usage", "Print tokens, calls and cost of a session."),
    "export": Row("session_files:export_session", "Write a session into a file."),
    "import": Row("session_files:import_session", "Read a session from a file, after verifying all of it."),
}
THREAD: Final = {
    "show": Row("thread:show", "Print where a thread stands and which objects hold it."),
    "verify": Row("verify:verify", "Verify threads and their archives: one, some, or all."),
    "import-v1": Row("thread:import_v1", "Take over threads of zeitlich's from their snapshots."),
    "export-v1": Row("thread:export_v1", "Write threads as snapshots that zeitlich reads."),
}
TELEMETRY: Final = {
    "backfill": Row("telemetry:backfill", "Tell turns again whose spans were lost."),
}
GROUPS: Final = {
    "session": (SESSION, "Look at sessions; addresses come from HELIX_… variables."),
    "thread": (THREAD, "Look at threads, verify them, take over zeitlich's."),
    "telemetry": (TELEMETRY, "Tell traces of turns again."),
}

app = typer.Typer(
    name="helix-temporal",
    cls=make_group(COMMANDS),
    no_args_is_help=True,
    **{**PLAIN, "add_completion": True},
)
for _name, (_rows, _help) in GROUPS.items():
    app.add_typer(typer.Typer(cls=make_group(_rows), help=_help, no_args_is_help=True, **PLAIN), name=_name)


@app.callback(invoke_without_command=True)
def helix_temporal(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Durable conversation threads and sessions for agents on Temporal.

    Addresses come from HELIX_… variables.  Exit statuses: 0 done, 1 failed, 2 usage, 3 partly, 4 not found,
    5 refused, 6 damaged, 7 store away, 8 locked out, 130 interrupted.
    """
    if show_version:
        from importlib.metadata import version  # noqa: PLC0415 (not for each command)

        typer.echo(version("helix-temporal"))
        raise typer.Exit
