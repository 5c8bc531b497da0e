"""Providers of workspaces that settings name by where to import them."""

import importlib
from collections.abc import Mapping
from typing import cast

from helix_temporal.errors import InvalidConfigError
from helix_temporal.stores.protocols.workspaces import WorkspaceProvider


def import_providers(paths: Mapping[str, str]) -> dict[str, WorkspaceProvider]:
    """Providers by id, each from ``package.module:attribute``: one, or what makes one.

    Raises:
        InvalidConfigError: A module or its attribute is not there, or is no provider.
    """
    return {name: _import_provider(name, path) for name, path in paths.items()}


def _import_provider(name: str, path: str) -> WorkspaceProvider:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(f"workspaces: {name}={path} cannot be imported: {error}") from error
    if isinstance(found, type) or not _is_provider(found):
        found = found() if callable(found) else None
    if not _is_provider(found):
        raise InvalidConfigError(
            f"workspaces: {name}={path} is no provider: list_snapshots and delete_snapshot expected"
        )
    return cast("WorkspaceProvider", found)


def _is_provider(found: object) -> bool:
    return all(callable(getattr(found, each, None)) for each in ("list_snapshots", "delete_snapshot"))
