"""Statements about sessions read what they need by an index, however many sessions and rows there are."""

from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import pytest

from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.postgres.queries import Queries
from helix_temporal.stores.postgres.sessions import _filter_values
from tests import _postgres

_SESSIONS: Final = """
    INSERT INTO "{prefix}states" (session_id, body, version, status, agent_type, user_id, tags, metadata,
        parent_session_id, created_at, updated_at)
    SELECT 's' || n, convert_to(repeat('x', 500), 'UTF8'), 1,
        CASE n % 100 WHEN 0 THEN 'paused' ELSE 'active' END,
        'agent' || n % 50, 'user' || n % 50, ARRAY['tag' || n % 50],
        jsonb_build_object('k', 'v' || n % 50),
        CASE WHEN n % 2 = 0 THEN 's' || n / 100 END, n, n
    FROM generate_series(1, 10000) AS n"""

_ROWS: Final = """
    INSERT INTO "{prefix}session_rows" (session_id, kind, grp, key, ord, body)
    SELECT 's' || s, kind,
        CASE kind WHEN 'staged' THEN 'step' || n % 10 WHEN 'record' THEN 'k/g' || n % 10 ELSE '' END,
        'key' || n, CASE kind WHEN 'record' THEN 0 ELSE n END, convert_to(repeat('x', 1000), 'UTF8')
    FROM generate_series(1, 300) AS s, generate_series(1, 20) AS n,
        unnest(ARRAY['operation', 'checkpoint', 'staged', 'run', 'record']) AS kind"""

_FILLED: set[str] = set()
"""Where the rows are: no test changes them."""

FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "roots": {"parent_session_id": None},
    "user": {"user_id": "user7"},
    "agent": {"agent_type": "agent7"},
    "status": {"status": ("paused",)},
    "parent": {"parent_session_id": "s7"},
    "tags": {"tags": ("tag7",)},
    "metadata": {"metadata": {"k": "v7"}},
    "created": {"date_from": 100, "date_to": 200},
    "updated": {"date_field": "updated_at", "date_from": 100, "date_to": 200},
    "several": {"user_id": "user7", "agent_type": "agent7", "status": ("active",)},
}
UNSELECTIVE = ("all", "roots")
"""Their count reads as many rows as there are."""

VIEW = (
    "'s1', '{run,operation}', '{\"\",\"\"}', '{key7,key8}', '{staged}', '{step7}', '{checkpoint}',"
    " '{record}', '{k/g7}'"
)
CHANGES = (
    "'{operation,run}', '{\"\",\"\"}', '{key7,key8}', '{staged}', '{step7}',"
    " '{run,checkpoint}', '{\"\",\"\"}', '{key7,new}', '{1,2}', '{a,b}'"
)
UNLESS = "'{operation}', '{\"\"}', '{new}', '{staged}', '{new}'"
STEP = "'s1', 1, 0, '', 1, 'm', '{user}', '{m}', '{a}', 1, true, NULL, 0, -1, 0"
STATEMENTS = {
    "session_view": VIEW,
    "session_row_view": "'s1', 'run', '', 'key7'",
    "session_thread_row_view": "'s1', 'run', '', 'key7'",
    "session_thread_view": VIEW,
    "session_touch": f"'s1', 9, 1, {CHANGES}, {UNLESS}",
    "session_touch_append": f"'s1', 9, 1, {CHANGES}, {UNLESS}, {STEP}",
    "session_delete": "'s1', 9, 1",
    "session_rows_page_asc": "'s1', 'run', 50, 10, 'key10'",
    "session_rows_page_desc": "'s1', 'run', 50, 10, 'key10'",
    "session_rows_page_count": "'s1', 'run'",
    "session_group_page_asc": "'s1', 'record', 'k/g7', 50, 'key1'",
    "session_group_page_desc": "'s1', 'record', 'k/g7', 50, 'key1'",
    "session_groups": "'s1', 'record', 'k/', 'k0', 50",
    "session_purge_operations": "2, 50",
}


@pytest.fixture
async def connection(postgres_dsn: str) -> AsyncIterator[Any]:
    """A connection of one's own to tables with rows."""
    prefix = _postgres.own_prefix("plans")
    connection = await asyncpg.connect(postgres_dsn)
    if postgres_dsn not in _FILLED:
        async with _postgres.emptied(postgres_dsn, prefix):
            for statement in (_SESSIONS, _ROWS, 'ANALYZE "{prefix}states"', 'ANALYZE "{prefix}session_rows"'):
                await connection.execute(statement.replace("{prefix}", prefix))
        _FILLED.add(postgres_dsn)
    yield connection
    await connection.close()


async def _prepare(connection: Any, name: str) -> None:
    await connection.execute(f"PREPARE {name} AS {Queries(_postgres.own_prefix('plans'))[name]}")


async def _plan(connection: Any, name: str, arguments: str) -> str:
    rows = await connection.fetch(f"EXPLAIN EXECUTE {name} ({arguments})")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("field", ["created_at", "updated_at"])
async def test_a_list_scans_no_table_whatever_was_listed_before(
    connection: Any, field: str, direction: str
) -> None:
    """One statement serves all filters; the server must not settle on one plan for them."""
    name = f"session_list_{field}_{direction}"
    await _prepare(connection, name)
    calls = {
        (what, whole): f"{_literals(_filter_values(SessionQuery(**filters)))}, NULL, NULL, 51, 0, {whole}"
        for what, filters in FILTERS.items()
        for whole in ("false", "true")
    }
    for arguments in calls.values():
        await connection.execute(f"EXECUTE {name} ({arguments})")
    plans = {what: await _plan(connection, name, arguments) for what, arguments in calls.items()}
    assert {what for what, plan in plans.items() if "Seq Scan" in plan} == set()


async def test_a_count_of_few_sessions_reads_few(connection: Any) -> None:
    """It comes with every page."""
    await _prepare(connection, "session_list_count")
    calls = {what: _literals(_filter_values(SessionQuery(**filters))) for what, filters in FILTERS.items()}
    for arguments in calls.values():
        await connection.execute(f"EXECUTE session_list_count ({arguments})")
    plans = {what: await _plan(connection, "session_list_count", calls[what]) for what in calls}
    assert {what for what, plan in plans.items() if "Seq Scan" in plan} <= set(UNSELECTIVE)


async def test_a_list_goes_on_at_its_cursor(connection: Any) -> None:
    """A late page costs what the first one does."""
    await _prepare(connection, "session_list_updated_at_desc")
    arguments = f"{_literals(_filter_values(SessionQuery()))}, 100, 's100', 51, 0, false"
    plan = await _plan(connection, "session_list_updated_at_desc", arguments)
    assert "Index Cond: (ROW(updated_at, session_id) < ROW('100'::bigint, 's100'::text))" in plan


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_rows_are_found_by_an_index(connection: Any, name: str, mode: str) -> None:
    """A step of a long session costs what it costs in a short one, whichever plan the server keeps."""
    await connection.execute(f"SET plan_cache_mode = {mode}")
    await _prepare(connection, name)
    plan = await _plan(connection, name, STATEMENTS[name])
    assert "Seq Scan" not in plan
    assert "Index Cond" in plan


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name != "session_purge_operations"])
async def test_one_plan_is_kept_for_rows(connection: Any, name: str) -> None:
    """Planning a commit anew costs several times what the commit does."""
    await _prepare(connection, name)
    for _ in range(8):
        await _plan(connection, name, STATEMENTS[name])
    query = "SELECT generic_plans FROM pg_prepared_statements WHERE name = $1"
    assert await connection.fetchval(query, name) > 0


def _literals(values: list[Any]) -> str:
    return ", ".join(_literal(value) for value in values)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join(value) + "}'"
    return f"'{value}'"
