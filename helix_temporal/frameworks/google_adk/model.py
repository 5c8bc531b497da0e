"""ADK's model inside a workflow, whose calls carry what is new of a conversation: `HelixModel`."""

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from temporalio.google_adk import TemporalModel
from temporalio.workflow import ActivityConfig

from helix_temporal.frameworks.google_adk.lanes import find_lanes


class HelixModel(TemporalModel):
    """A `TemporalModel` whose activity is given what is new of a conversation, for the same answers.

    For runners with `HelixWorkflowSessionService`; the worker has `HelixGoogleAdkPlugin`.  A call that is
    streamed, one whose schema of answers is a Python type other than a pydantic model, and one of a runner
    with another session service go as `TemporalModel`'s do, with all contents.

    Args:
        model_name: As ADK's registry knows it.
        activity_config: Of the activity; by default an attempt may take 60 seconds.
        summary_fn: As for `TemporalModel`.
        more: As `TemporalModel` takes it.
    """

    def __init__(
        self,
        model_name: str,
        activity_config: ActivityConfig | None = None,
        *,
        summary_fn: Callable[[LlmRequest], str | None] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(model_name, activity_config, summary_fn=summary_fn, **more)
        self._helix_summary = summary_fn
        self._helix_config = ActivityConfig(
            start_to_close_timeout=timedelta(seconds=60), heartbeat_timeout=timedelta(seconds=30)
        )
        self._helix_config.update(activity_config or {})

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """As `TemporalModel.generate_content_async`."""
        lanes = find_lanes()
        request = None if stream else _with_plain_schema(llm_request)
        if lanes is None or request is None or not request.contents:
            async for response in super().generate_content_async(llm_request, stream=stream):
                yield response
            return
        for response in await lanes.invoke_model(request, self._configure_call(request)):
            yield response

    def _configure_call(self, request: LlmRequest) -> ActivityConfig:
        """The activity's options, with the summary that `TemporalModel` would give it."""
        config = self._helix_config.copy()
        if self._helix_summary is not None:
            summary = self._helix_summary(request)
        else:
            summary = config.get("summary") or (request.config.labels or {}).get("adk_agent_name")
        if summary is not None:
            config["summary"] = summary
        return config


def _with_plain_schema(request: LlmRequest) -> LlmRequest | None:
    """The request with a schema of answers that travels; None if `TemporalModel` must make one of it."""
    schema = request.config.response_schema
    if schema is None or isinstance(schema, dict | types.Schema):
        return request
    to_json = getattr(schema, "model_json_schema", None)
    if not isinstance(schema, type) or to_json is None:
        return None
    config = request.config.model_copy(update={"response_schema": to_json()})
    return request.model_copy(update={"config": config})
