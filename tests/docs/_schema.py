"""The tables as one page of SQL: ``python -m tests.docs._schema`` writes ``docs/schema.sql``."""

from pathlib import Path
from typing import Final

from helix_temporal.stores.postgres.migrations import TABLE, load_migrations
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX

SCHEMA: Final = Path(__file__).parents[2] / "docs" / "schema.sql"

_HEAD: Final = """\
-- The tables of helix_temporal in PostgreSQL, with the default prefix: all migrations, one after the other.
-- Generated from them by `make schema`; `helix-temporal migrate` applies them.

"""


def schema() -> str:
    """All migrations with the default prefix."""
    parts = [
        f"-- ==== V{each.version} {each.name.replace('_', ' ')}\n\n{each.text}" for each in load_migrations()
    ]
    return _HEAD + "\n".join([TABLE, *parts]).replace("{prefix}", DEFAULT_PREFIX)


if __name__ == "__main__":
    SCHEMA.write_text(schema())
