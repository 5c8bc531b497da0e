"""What the tests of this package use, for the tests of others."""

from helix_temporal.testing.environment import HelixEnv, helix_env

__all__ = ["HelixEnv", "helix_env"]
