"""The contract of `UsageStore`: bind it by a class and two fixtures, `usage` and `another`."""

from helix_temporal.testing.contracts._usage import UsageContract

__all__ = ["UsageContract"]
