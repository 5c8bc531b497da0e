"""Names of the package's code that pages write out, such as ``client._handle.SessionHandle.ask``."""

import importlib
import importlib.util
import re
from types import ModuleType
from typing import Final

import helix_temporal

_NAME: Final = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def names_in(text: str) -> list[str]:
    """Dotted names in backquotes whose first part is a module or package of ours, in their order."""
    return [each for each in _NAME.findall(text) if _is_module(each.partition(".")[0])]


def is_there(name: str) -> bool:
    """Whether a name below ``helix_temporal`` can be imported or looked up."""
    found: object = helix_temporal
    for part in name.split("."):
        below = f"{found.__name__}.{part}" if isinstance(found, ModuleType) else ""
        if below and _is_importable(below):
            found = importlib.import_module(below)
        elif hasattr(found, part):
            found = getattr(found, part)
        else:
            return False
    return True


def _is_module(part: str) -> bool:
    return _is_importable(f"{helix_temporal.__name__}.{part}")


def _is_importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
