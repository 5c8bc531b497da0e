"""The runner that skips what only codecs and external storage need."""

from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.workflows.runners import ContextFreeRunner, needs_contexts


class _Codec(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


def test_a_codec_keeps_the_ordinary_runner() -> None:
    """A codec may encrypt by workflow: it must be told for whom each payload is."""
    assert needs_contexts(DataConverter(payload_codec=_Codec()))


def test_without_a_codec_nobody_asks() -> None:
    """Then asking is a quarter of a worker's processor time for nothing."""
    assert not needs_contexts(DataConverter())


def test_the_lean_runner_is_still_the_sandbox() -> None:
    """Workflows stay as deterministic as the SDK makes them."""
    assert issubclass(ContextFreeRunner, SandboxedWorkflowRunner)
