"""What a PostgreSQL says of itself and of our tables."""

from typing import Final

from helix_temporal.stores.postgres.database import PostgresDatabase
from helix_temporal.stores.postgres.migrations import PostgresMigrations
from helix_temporal.stores.protocols.server_facts import PostgresFacts

_LOOK: Final = """SELECT current_setting('server_version') AS version,
    current_setting('max_connections')::int AS most,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now"""


async def read_facts(database: PostgresDatabase, migrations: PostgresMigrations) -> PostgresFacts:
    """Ask the server; changes nothing.

    Raises:
        HelixError: As any call of the database.
    """
    tables = await migrations.current_version()
    (row,) = await database.fetch(_LOOK)
    return PostgresFacts(
        where=database.where,
        version=row["version"].partition(" ")[0],
        tables_version=tables,
        latest_version=migrations.latest,
        connections=row["connections"],
        max_connections=row["most"],
        now=row["now"],
    )
