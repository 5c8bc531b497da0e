"""What is installed here."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from helix_temporal.doctor.checks import Check, make_check

_DRIVERS: Final = ("redis", "asyncpg", "aiosqlite", "aioboto3")


def check_versions() -> Check:
    """The package, Temporal's SDK, Python and the drivers that are installed."""
    names = ("helix-temporal", "temporalio", *_DRIVERS)
    found = {name: _find_version(name) for name in names}
    told = [f"{name} {number}" for name, number in found.items() if number]
    said = ", ".join([*told, f"Python {platform.python_version()}", platform.platform(terse=True)])
    return make_check("versions", "installed", "ok", said)


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
