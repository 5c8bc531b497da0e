"""Adapters are told at once that they were given no store."""

from typing import Any

import pytest

from helix_temporal import Backends, Settings
from helix_temporal.errors import InvalidConfigError
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore
from helix_temporal.frameworks.given_stores import check_records, check_sessions


async def test_what_is_no_store_is_refused_where_the_adapter_is_made() -> None:
    """Such as the backends, or the other one of their two stores."""
    backends = Backends(Settings())
    check_sessions(backends.sessions)
    check_records(backends.records)
    given: Any
    for given in (backends, backends.records, None):
        with pytest.raises(InvalidConfigError, match=r"give Backends\.sessions"):
            HelixSessionStore(given)
    with pytest.raises(InvalidConfigError, match=r"give Backends\.records"):
        check_records(backends.sessions)
    await backends.close()
