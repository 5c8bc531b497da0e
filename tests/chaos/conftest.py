"""A seed for each campaign, shown with whatever it found."""

import os
import secrets

import pytest


@pytest.fixture
def seed(record_property: pytest.FixtureRequest) -> int:
    """Random, or ``HELIX_TEST_CHAOS_SEED``; written into the report."""
    given = os.environ.get("HELIX_TEST_CHAOS_SEED")
    found = int(given) if given else secrets.randbelow(2**31)
    record_property("seed", found)  # type: ignore[operator]
    return found
