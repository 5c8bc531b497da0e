"""What a server's or the driver's error means for the caller."""

import re
import ssl
from typing import Final

from redis import exceptions as driver

from helix_temporal.errors import (
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
_NOT_PRIMARY: Final = frozenset({"LOADING", "MASTERDOWN", "READONLY"})
_CLUSTER: Final = frozenset({"ASK", "CROSSSLOT", "MOVED"})
_KNOWN: Final = _PASSING | _RIGHTS | _CLUSTER | {"WRONGTYPE"}
_LACKS: Final = re.compile("ACL failure in script|The user executing the script can't")
"""What servers say of rights within a script, without a code of its own."""
_COMMAND: Final = re.compile(r"the '([a-z0-9_|.-]+)' command")
_KEY: Final = re.compile(r"\b(access|permissions?)\b.*\bkeys?\b")
_IN_SCRIPT: Final = re.compile(r"user_script: ?\d+: -?([A-Z]+)?")


def translate(error: Exception, where: str) -> HelixError:
    """Our error for one of the driver's; texts of the server, which may quote arguments, stay out of it.

    Args:
        error: What the driver raised, or a time-out of our own.
        where: The server's address, without credentials.
    """
    name, code = type(error).__name__, _code(error)
    if code == "NOPERM":
        return InvalidConfigError(f"Redis at {where} refuses the user {_lacking(str(error))}")
    if code in _RIGHTS or isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return InvalidConfigError(f"Redis at {where} refused the user or the password ({name})")
    if code in _PASSING:
        return StoreUnavailableError(f"Redis at {where} cannot answer now ({code}); repeat the call later")
    if (amiss := _misconfigured(error, code)) is not None:
        return InvalidConfigError(f"Redis at {where} {amiss}")
    if not isinstance(error, driver.ResponseError | driver.DataError):
        return _unanswered(error, where)
    return UnsupportedServerError(f"Redis at {where} refused a command ({code or name})")


def _misconfigured(error: Exception, code: str) -> str | None:
    """What a setting has wrong, by an error that says so."""
    if code in _CLUSTER:
        return "is a node of a cluster; set redis_cluster"
    if code == "WRONGTYPE":
        return "holds something else under a key of ours; give each application its own prefix"
    if isinstance(error, driver.RedisClusterException) and "not enabled" in str(error):
        return "is no cluster; unset redis_cluster"
    if "DB index" in str(error):
        return "has no such database; correct the number in redis_url"
    return None


def _unanswered(error: Exception, where: str) -> StoreUnavailableError:
    if isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
        return StoreUnavailableError(
            f"Redis at {where} shows a certificate that is not trusted here; "
            "add ssl_ca_certs=<file> to redis_url"
        )
    return StoreUnavailableError(
        f"Redis at {where} did not answer ({type(error).__name__}); repeat the call later"
    )


def has_moved(error: Exception) -> bool:
    """Whether the server says that it is not the primary, or not yet ready to be one.

    A new connection to the same address may then lead to another server.
    """
    return _code(error) in _NOT_PRIMARY


def is_damage(error: driver.ResponseError) -> str | None:
    """What a script found damaged; None if it did not end by that.

    A script that stumbles over a value that is no number, or shorter than it should be, found damage, too.
    """
    text = str(error)
    if not _IN_SCRIPT.search(text) or _code(error) in _KNOWN:
        return None
    if torn := re.search(r"TORN at position (\d+)", text):
        return f"it lacks the message at position {torn[1]}"
    if found := re.search(r"DAMAGED (\w+)", text):
        return f"the checksum of its {found[1]} is wrong"
    return "a value is not what a script expects there"


def _lacking(text: str) -> str:
    """What a right is missing for, and how to grant it."""
    if command := _COMMAND.search(text):
        return f"{command[1].upper()}; grant: ACL SETUSER <user> +{command[1]}"
    if _KEY.search(text):
        return "a key; grant all that begin with the prefix: ACL SETUSER <user> ~<redis_prefix>*"
    return "a command of a script; the check at a worker's start names it"


def _code(error: Exception) -> str:
    """The code that the server's error began with; the driver strips those that it knows.

    Of an error within a script, Redis 6 tells the code of the command behind the place in the script.
    """
    stripped: object = getattr(error, "status_code", None)
    if isinstance(stripped, str) and stripped != "ERR":
        return stripped
    text = str(error)
    if _LACKS.search(text):
        return "NOPERM"
    for within in _IN_SCRIPT.findall(text):
        if within in _KNOWN:
            return str(within)
    return _STRIPPED.get(type(error).__name__) or text.split(" ", 1)[0]
