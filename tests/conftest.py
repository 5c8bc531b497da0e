"""Fixtures for all tests."""

import pytest

# Without this a failing contract prints a bare AssertionError.
pytest.register_assert_rewrite("helix_temporal.testing.contracts")
