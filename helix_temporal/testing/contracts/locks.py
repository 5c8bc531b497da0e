"""The contract of `LockManager`: bind it by a class and two fixtures, `locks` and `another`.

A store on a server binds `ServerClockContract` too.
"""

from helix_temporal.testing.contracts._locks import LocksContract, ServerClockContract

__all__ = ["LocksContract", "ServerClockContract"]
