"""What an adapter is given as its store: told where it is made, not by the first call."""

from helix_temporal.errors import InvalidConfigError


def check_sessions(given: object) -> None:
    """Refuse what is no `SessionStore`.

    Raises:
        InvalidConfigError: It has not its methods.
    """
    _check_store(given, "append_messages", "a session store: give Backends.sessions")


def check_records(given: object) -> None:
    """Refuse what is no `Records` store.

    Raises:
        InvalidConfigError: It has not its methods.
    """
    _check_store(given, "list_groups", "a store of records: give Backends.records")


def _check_store(given: object, method: str, wanted: str) -> None:
    if not callable(getattr(given, method, None)):
        raise InvalidConfigError(f"{type(given).__name__} was given, and is not {wanted}")
