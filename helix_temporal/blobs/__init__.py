"""Blob stores: immutable objects and one kind of mutable one, replaced by compare-and-swap."""

from helix_temporal.blobs.protocol import Blob, BlobInfo, BlobStore, ConditionFailedError

__all__ = ["Blob", "BlobInfo", "BlobStore", "ConditionFailedError"]
