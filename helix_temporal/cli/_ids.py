"""Ids among the arguments of commands."""

from collections.abc import Callable
from typing import Any

import typer

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.ids import validate_id


def check_ids(what: str) -> Callable[[Any], Any]:
    """A callback that refuses what is no id, as of a terminal without UTF-8: nothing can have it.

    Args:
        what: The ids are called this in errors.
    """

    def check(ids: Any) -> Any:
        try:
            for each in [ids] if isinstance(ids, str) else ids or ():
                validate_id(each, what)
        except InvalidIdError as error:
            raise typer.BadParameter(str(error)) from None
        return ids

    return check
