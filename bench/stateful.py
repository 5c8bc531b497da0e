"""Turns per second of sessions whose state is in PostgreSQL, against the same without a session store."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from temporalio.client import Client

from bench._lab import Lab, in_turns
from bench._report import Row, compared
from bench._workers import worker
from bench.turns import Field, Sessions, cpu_rows
from helix_temporal.plugin import HelixPlugin

_STATE: Final = "state in PostgreSQL"
_SLICE: Final = "slice"


@contextlib.asynccontextmanager
async def _field(lab: Lab) -> AsyncIterator[Field]:
    """Two workers; threads in Redis and S3 for both."""
    settings = {_STATE: await lab.own_with_state(), _SLICE: lab.own()}
    async with contextlib.AsyncExitStack() as stack:
        workers = {}
        for name, each in settings.items():
            workers[name] = (await stack.enter_async_context(worker("helix", each))).pid
        client = await Client.connect(lab.settings.temporal_address, plugins=[HelixPlugin()])
        yield Field(lab, {name: Sessions(client, each) for name, each in settings.items()}, workers)


async def stateful(lab: Lab) -> list[Row]:
    """Turns per second at one and at many sessions."""
    rows: list[Row] = []
    async with _field(lab) as field:
        for sessions, count in zip(lab.sizes.sessions, lab.sizes.turns, strict=True):
            runs = {name: partial(field.run, name, sessions, count) for name in field.contestants}
            found = await in_turns(lab, f"turns with state, {sessions} session(s)", runs)
            rows.append(
                compared(
                    f"turns a second, {sessions} session(s), {_STATE}",
                    "turns/s",
                    found[_STATE],
                    found[_SLICE],
                    at_least=0.85,
                    note="floor: the same without a session store; threads in Redis and S3",
                )
            )
            rows += cpu_rows(field, _STATE, _SLICE, sessions)
    return rows
