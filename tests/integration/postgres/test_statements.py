"""The named statements against the tables that the migrations make."""

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from helix_temporal.stores.postgres.queries import Queries, load_statement, statement_names
from tests import _postgres


@pytest.fixture
async def connection(postgres_dsn: str) -> AsyncIterator[Any]:
    """A connection of one's own, and migrated tables."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix("prepared")):
        connection = await asyncpg.connect(postgres_dsn)
        yield connection
        await connection.close()


async def test_every_statement_fits_the_tables(connection: Any) -> None:
    """A column that was renamed is found here, not by the first user of a statement."""
    queries, refused = Queries(_postgres.own_prefix("prepared")), {}
    for name in statement_names():
        try:
            await connection.prepare(queries[name])
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    assert refused == {}


def test_every_statement_quotes_every_prefix() -> None:
    """Without quotes the case of a prefix is lost, and a reserved word is an error."""
    bare = [name for name in statement_names() if re.search(r'(?<!")\{prefix\}', load_statement(name))]
    assert bare == []


def test_a_part_is_renumbered_behind_other_arguments() -> None:
    """A thread's append becomes part of a larger statement without being written twice."""
    assert "t.thread_id = $1 AND" in load_statement("thread_append")
    assert "t.thread_id = $38 AND" in load_statement("session_update_append")
