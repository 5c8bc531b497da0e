"""The named statements against the tables that the migrations make."""

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from helix_temporal.stores.postgres.queries import Queries, names, statement
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
    for name in names():
        try:
            await connection.prepare(queries[name])
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    assert refused == {}


def test_every_statement_quotes_every_prefix() -> None:
    """Without quotes the case of a prefix is lost, and a reserved word is an error."""
    bare = [name for name in names() if re.search(r'(?<!")\{prefix\}', statement(name))]
    assert bare == []


def test_a_part_is_renumbered_behind_other_arguments() -> None:
    """A thread's append becomes part of a larger statement without being written twice."""
    assert "t.thread_id = $1 AND" in statement("thread_append")
    assert "t.thread_id = $37 AND" in statement("session_update_append")
