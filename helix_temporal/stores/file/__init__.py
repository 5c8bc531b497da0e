"""Stores on the local disk."""

from helix_temporal.stores.file.backend import FileBackend
from helix_temporal.stores.file.payloads import FilePayloads
from helix_temporal.stores.file.threads import FileThreads

__all__ = ["FileBackend", "FilePayloads", "FileThreads"]
