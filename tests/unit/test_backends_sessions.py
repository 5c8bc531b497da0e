"""A program that asks for a session store that it has turned off is told so."""

import pytest

from helix_temporal import Backends, Settings
from helix_temporal.errors import InvalidConfigError


@pytest.mark.parametrize("part", ["sessions", "records"])
async def test_a_session_store_that_is_turned_off_is_told(part: str) -> None:
    """Handed to a framework as None, it was an AttributeError of the first append."""
    backends = Backends(Settings(session_store="none"))
    assert not backends.keeps_sessions
    with pytest.raises(InvalidConfigError, match="HELIX_SESSION_STORE is 'none'; leave it out"):
        getattr(backends, part)
    await backends.close()
