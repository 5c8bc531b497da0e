"""What a command needs of the stores that the environment names, looked at before any is opened."""

from enum import Enum, auto

from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings


class StoreUse(Enum):
    """What a command does with the stores.

    Attributes:
        THREADS: It reads threads, or changes the archive alone: an archive without a hot store has them, too.
        HOT_THREADS: It works on the hot store.
        LISTS: It reads rows of the session store, no thread and no archive: what the archive takes to open
            (a client of S3, 25 MB) is left out.
        SESSIONS: It reads what stands in the session store or beside it: checkpoints, usage.
        WRITING: It writes sessions: threads, state, runs and usage.  A database that is not there is made.
        TRIAL: It looks whether it could write sessions.  A database that is not there is an empty one.
    """

    THREADS = auto()
    HOT_THREADS = auto()
    LISTS = auto()
    SESSIONS = auto()
    WRITING = auto()
    TRIAL = auto()


def check_stores(settings: Settings, use: StoreUse) -> None:
    """Refuse to look for something, or to keep it, where no other process has it.

    Raises:
        InvalidConfigError: It would be in this process's own memory; or the database is not there.
    """
    check_threads_shared(settings, in_archive=use in {StoreUse.THREADS, StoreUse.LISTS, StoreUse.SESSIONS})
    if settings.state_in == "memory" and use not in {StoreUse.THREADS, StoreUse.HOT_THREADS}:
        raise InvalidConfigError(
            "there is no store of state and usage that this command can reach; set what the session "
            "workers have of HELIX_POSTGRES_DSN, HELIX_REDIS_URL, HELIX_DATA_DIRECTORY"
        )
    if use not in {StoreUse.WRITING, StoreUse.TRIAL}:
        check_database_exists(settings)


def check_threads_shared(settings: Settings, *, in_archive: bool = True) -> None:
    """Refuse to look for threads, or to keep them, in this process's own memory.

    Args:
        settings: Where they are.
        in_archive: An archive is enough.

    Raises:
        InvalidConfigError: No store is named that other processes have, too.
    """
    if settings.threads_in == "memory" and not (in_archive and settings.has_cold_tier):
        archive = ", HELIX_S3_BUCKET, HELIX_COLD_DIRECTORY" if in_archive else ""
        raise InvalidConfigError(
            "there is no store of threads that this command can reach; set what the session workers have of "
            f"HELIX_REDIS_URL, HELIX_POSTGRES_DSN, HELIX_DATA_DIRECTORY{archive}"
        )


def check_session_store(settings: Settings) -> None:
    """Refuse to work on sessions where none are kept, or nobody else's.

    Raises:
        InvalidConfigError: There is no session store, or it would be in this process's own memory; or the
            database is not there.
    """
    if settings.session_store == "none" or settings.state_in == "memory":
        raise InvalidConfigError(
            "there is no session store that this command can reach;"
            " set HELIX_POSTGRES_DSN, HELIX_REDIS_URL or HELIX_DATA_DIRECTORY"
        )
    check_database_exists(settings)


def check_database_exists(settings: Settings) -> None:
    """A misspelt directory must not read as sessions that were deleted, and reading makes no database.

    Raises:
        InvalidConfigError: There is none where threads or state would be.
    """
    if is_database_missing(settings):
        raise InvalidConfigError(
            f"there is no database at {settings.sqlite_file}; see HELIX_DATA_DIRECTORY and HELIX_NAME"
        )


def is_database_missing(settings: Settings) -> bool:
    """Whether threads or state are in a database that nobody has made yet."""
    file = settings.sqlite_file
    used = "sqlite" in {settings.threads_in, settings.state_in}
    return used and file is not None and not file.exists()
