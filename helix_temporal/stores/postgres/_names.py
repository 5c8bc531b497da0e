"""The names of tables: a prefix of one's own before each, so that deployments can share a database."""

import re
from typing import Final

from helix_temporal.errors import InvalidConfigError

DEFAULT_PREFIX: Final = "__agents_"

_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,29}")


def check_prefix(prefix: object) -> str:
    """Return the prefix if tables may begin with it.

    PostgreSQL cuts names at 63 bytes without a word, and two prefixes would then share a table: so it is
    short.  In SQL it always stands inside quotes: case is kept, and reserved words are names like others.

    Raises:
        InvalidConfigError: It is not text of ``[A-Za-z_][A-Za-z0-9_]*`` with at most 30 characters.
    """
    if not isinstance(prefix, str):
        raise InvalidConfigError(f"table_prefix: text expected, got {type(prefix).__name__}")
    if not _PREFIX.fullmatch(prefix):
        shown = ascii(prefix[:40])
        raise InvalidConfigError(
            f"table_prefix {shown} must match [A-Za-z_][A-Za-z0-9_]* and have at most 30 characters"
        )
    return prefix
