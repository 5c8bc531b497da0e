"""Blobs in S3 or a server that speaks its protocol.  The only package that imports aioboto3."""

from helix_temporal.blobs.s3._store import S3Blobs

__all__ = ["S3Blobs"]
