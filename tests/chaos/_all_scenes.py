"""All scenes: importing a module of them registers its own."""

from tests.chaos import _child_scenes, _handle_scenes, _store_scenes, _thread_scenes, _waiting_scenes
from tests.chaos._scenes import SCENES

__all__ = [
    "SCENES",
    "_child_scenes",
    "_handle_scenes",
    "_store_scenes",
    "_thread_scenes",
    "_waiting_scenes",
]
