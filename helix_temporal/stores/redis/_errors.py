"""What a server's or the driver's error means for the caller."""

from typing import Final

from redis import exceptions as driver

from helix_temporal.errors import (
    ArchiveCorruptError,
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    UnsupportedServerError,
)

_PASSING: Final = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNKILLABLE",
    }
)
"""Codes of states that end by themselves: a failover, a restart, memory that is given back."""

_STRIPPED: Final = {
    "AskError": "ASK",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}
"""Codes that older drivers tell by the class alone."""

_RIGHTS: Final = frozenset({"NOAUTH", "NOPERM", "WRONGPASS"})
_CLUSTER: Final = frozenset({"ASK", "CROSSSLOT", "MOVED"})


def translate(error: Exception, where: str) -> HelixError:
    """Our error for one of the driver's; texts of the server, which may quote arguments, stay out of it.

    Args:
        error: What the driver raised, or a time-out of our own.
        where: The server's address, without credentials.
    """
    name, code = type(error).__name__, _code(error)
    if code in _RIGHTS or isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return InvalidConfigError(f"Redis at {where} refused the user or a command ({name}): check rights")
    if code in _PASSING:
        return StoreUnavailableError(f"Redis at {where} cannot answer now ({code}); repeat the call later")
    if code in _CLUSTER:
        return InvalidConfigError(f"Redis at {where} is a node of a cluster; set redis_cluster")
    if code == "WRONGTYPE":
        return InvalidConfigError(
            f"Redis at {where} holds something else under a key of ours; give each application its own prefix"
        )
    if isinstance(error, driver.RedisClusterException) and "not enabled" in str(error):
        return InvalidConfigError(f"Redis at {where} is no cluster; unset redis_cluster")
    if not isinstance(error, driver.ResponseError | driver.DataError):
        return StoreUnavailableError(f"Redis at {where} did not answer ({name}); repeat the call later")
    if "TORN" in str(error):
        return ArchiveCorruptError(f"Redis at {where} holds a thread that lacks some of its messages")
    return UnsupportedServerError(f"Redis at {where} refused a command ({code or name})")


def _code(error: Exception) -> str:
    """The code that the server's error began with; the driver strips those that it knows."""
    stripped: object = getattr(error, "status_code", None)
    if isinstance(stripped, str):
        return stripped
    return _STRIPPED.get(type(error).__name__) or str(error).split(" ", 1)[0]
