"""Running a server that refuses to run as root as somebody else."""

import os
import pwd
import stat
from pathlib import Path

from helix_temporal.devstack._processes import Account


def unprivileged_account() -> Account | None:
    """Who a server that refuses root should run as: None, this very user, unless that is root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        # Any id without files of its own does.
        return Account(65534, 65534, "nobody")
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)


def blocking_directory(path: Path, account: Account) -> Path | None:
    """The topmost directory on the way to ``path`` that the account can't search, or None."""
    for directory in [*reversed(path.resolve().parents), path.resolve()]:
        if directory.is_dir() and not _may(directory.stat(), account, stat.S_IXOTH):
            return directory
    return None


def unreadable_file(root: Path, account: Account) -> Path | None:
    """A file or directory below ``root`` that the account can't read, or None."""
    for directory, _, names in os.walk(root):
        for path in (Path(directory), *(Path(directory, name) for name in names)):
            if not _may(path.stat(), account, stat.S_IROTH):
                return path
    return None


def _may(found: os.stat_result, account: Account, other: int) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & (other << 6))
    if found.st_gid == account.gid:
        return bool(found.st_mode & (other << 3))
    return bool(found.st_mode & other)
