"""Names of the package's code that pages write out, such as ``client._handle.SessionHandle.ask``."""

import importlib.util
import pkgutil
import re
from typing import Final

import helix_temporal

_NAME: Final = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def names_in(text: str) -> list[str]:
    """Dotted names in backquotes whose first part is a module or package of ours, in their order."""
    return [each for each in _NAME.findall(text) if _is_module(each.partition(".")[0])]


def is_there(name: str) -> bool:
    """Whether a name below ``helix_temporal`` can be imported or looked up."""
    try:
        pkgutil.resolve_name(f"{helix_temporal.__name__}.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def _is_module(part: str) -> bool:
    return importlib.util.find_spec(f"{helix_temporal.__name__}.{part}") is not None
