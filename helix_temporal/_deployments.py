"""Whose a session is: said with each start, request and activity, and compared where it arrives.

A client says its deployment's identity in a header of each update, query and standalone activity, and in the
memo of each workflow that it starts.  A session takes over the identity of the worker that opened it, which
knows all its stores, and says it to each activity and sub-agent.  A worker that is another deployment
refuses.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    ActivityHandle,
    Client,
    OutboundInterceptor,
    QueryWorkflowInput,
    StartActivityInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowUpdateHandle,
)
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.common import RawValue
from temporalio.converter import ActivitySerializationContext, DataConverter
from temporalio.worker import (
    ActivityInboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleUpdateInput,
    Interceptor,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.worker import StartActivityInput as ScheduleActivityInput

from helix_temporal._converter import user_data_converter
from helix_temporal.activities._runtime import application_error
from helix_temporal.errors import ForeignDeploymentError
from helix_temporal.models.deployments import KEY, QUEUE, Deployment, DeploymentCheck, digest_location
from helix_temporal.settings import Settings

_OURS: Final = "helix."
_OPEN: Final = "helix.sessions.open"
_REFUSE: Final = "helix.refuse_foreign"

_ENCODING: Final = b"binary/plain"
"""Of bytes, and of nothing else, in every default converter."""

Headers = Mapping[str, Payload]


# -- clients


def settings_of(client: Client) -> Settings | None:
    """Of the `HelixPlugin` that the client was given."""
    for plugin in client.config(active_config=True)["plugins"]:
        settings = getattr(plugin, "settings", None)
        if isinstance(settings, Settings):
            return settings
    return None


def asking_for(settings: Settings, task_queue: str | None) -> Deployment:
    """How a client names its deployment; without stores by its task queue, if that was said."""
    own = settings.deployment
    queue = task_queue or (settings.task_queue if "task_queue" in settings.model_fields_set else None)
    return own if own.marks or queue is None else Deployment(own.name, ((QUEUE, digest_location(queue)),))


def speaking_for(client: Client, deployment: Deployment) -> Client:
    """The client, which says for whom it asks, with the pack's converter; the one given stays as it is.

    Raises:
        InvalidConfigError: Its payload converter does not carry ``None`` and JSON objects.
    """
    converter = user_data_converter(client.data_converter)
    if deployment.is_plain and converter is client.data_converter:
        return client
    # As its plugins have made it: they are not asked a second time, which not all of them would take.
    config = client.config(active_config=True)
    config["plugins"], config["data_converter"] = [], converter
    if not deployment.is_plain:
        config["interceptors"] = [*config["interceptors"], _Speaker(deployment)]
    return Client(**config)


class _Speaker(ClientInterceptor):
    def __init__(self, deployment: Deployment) -> None:
        self._said = {KEY: _identity_payload(str(deployment))}

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Requests(next, self._said)


class _Requests(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, said: Headers) -> None:
        super().__init__(next)
        self._said = said

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        input.headers = {**input.headers, **self._said}
        return await super().query_workflow(input)

    async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        input.headers = {**input.headers, **self._said}
        return await super().start_activity(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        input.headers = {**input.headers, **self._said}
        return await super().start_workflow_update(input)

    async def start_update_with_start_workflow(
        self, input: StartWorkflowUpdateWithStartInput
    ) -> WorkflowUpdateHandle[Any]:
        update = input.update_workflow_input
        update.headers = {**update.headers, **self._said}
        return await super().start_update_with_start_workflow(input)


# -- workers


class DeploymentGuard(Interceptor):
    """Makes a worker refuse sessions, and requests, of other deployments."""

    def __init__(self, check: DeploymentCheck) -> None:
        self._check = check

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Activities refuse what was started for another deployment."""
        return _Activities(next, self._check)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        """Sessions refuse requests of another deployment, and say whose they are."""
        input.unsafe_extern_functions[_REFUSE] = self._check.refuse
        return _Workflows


class ReadableHeaders(ClientInterceptor, Interceptor):
    """Gives the header of the pack its metadata on workers, for interceptors that read all headers.

    The first of a client's: interceptors of a client come before those of its workers.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _ReadableActivities(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 (the SDK's signature)
    ) -> type[WorkflowInboundInterceptor]:
        return _ReadableWorkflows


class _ReadableActivities(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        _add_metadata(input.headers)
        return await super().execute_activity(input)


class _ReadableWorkflows(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        _add_metadata(input.headers)
        return await super().execute_workflow(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        _add_metadata(input.headers)
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        _add_metadata(input.headers)
        return await super().handle_update_handler(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:
        _add_metadata(input.headers)
        return await super().handle_query(input)


class _Activities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, check: DeploymentCheck) -> None:
        super().__init__(next)
        self._check = check

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        said = input.headers.get(KEY)
        if said is not None and activity.info().activity_type.startswith(_OURS):
            identity = _read_identity(said) or await _encoded_identity(said)
            try:
                if identity is not None:
                    self._check.refuse(identity)
            except ForeignDeploymentError as error:
                raise application_error(error) from None
        return await super().execute_activity(input)


class _Workflows(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Calls(outbound))

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        # Validators and queries are not replayed, so they may look at the worker that runs them.
        _refuse_foreign_request(input.headers)
        super().handle_update_validator(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:
        try:
            _refuse_foreign_request(input.headers)
        except ForeignDeploymentError as error:
            # A query's failure travels as a text alone.
            raise ForeignDeploymentError(f"{type(error).__name__}: {error}") from None
        return await super().handle_query(input)


class _Calls(WorkflowOutboundInterceptor):
    """Says whose workflow it is to the pack's activities, sub-agents and the next run."""

    _opened: str | None = None

    def start_activity(self, input: ScheduleActivityInput) -> "workflow.ActivityHandle[Any]":
        if not input.activity.startswith(_OURS):
            return super().start_activity(input)
        input.headers = {**input.headers, **self._identity_headers()}
        handle = super().start_activity(input)
        if input.activity == _OPEN:
            handle.add_done_callback(self._take_over)
        return handle

    async def start_child_workflow(
        self, input: StartChildWorkflowInput
    ) -> "workflow.ChildWorkflowHandle[Any, Any]":
        mine = self._own_identity()
        if mine and input.workflow.startswith(_OURS):
            input.memo = {**(input.memo or {}), KEY: mine}
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> Any:
        input.headers = {**input.headers, **self._identity_headers()}
        return super().continue_as_new(input)

    def _take_over(self, opened: "workflow.ActivityHandle[Any]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            policy = getattr(opened.result(), "policy", None)
            self._opened = getattr(policy, "deployment", None) or self._opened

    def _identity_headers(self) -> Headers:
        mine = self._own_identity()
        return {KEY: _identity_payload(mine)} if mine else {}

    def _own_identity(self) -> str | None:
        if self._opened is None:
            identity = identity_in(workflow.info().headers)
            self._opened = identity or workflow.memo_value(KEY, "", type_hint=str)
        return self._opened or None


def _refuse_foreign_request(headers: Headers) -> None:
    identity = identity_in(headers)
    check = workflow.extern_functions().get(_REFUSE)
    if identity is None or check is None:
        return
    info = workflow.info()
    # A sub-agent may run on another queue than its root.
    check(identity, info.task_queue if info.parent is None else None)


def _add_metadata(headers: Headers) -> None:
    said = headers.get(KEY)
    if said is not None and not said.metadata:
        said.metadata["encoding"] = _ENCODING


def _identity_payload(text: str) -> Payload:
    # Without metadata, which `ReadableHeaders` adds: it is in the history of each activity and update.
    return Payload(data=text.encode())


def identity_in(headers: Headers) -> str | None:
    """Of whom headers say that they ask; None where they do not, or where it cannot be read."""
    said = headers.get(KEY)
    return None if said is None else _read_identity(said)


def _read_identity(said: Payload) -> str | None:
    """What a header says; None where that cannot be read, as where a codec has encoded it."""
    if said.metadata.get("encoding", _ENCODING) != _ENCODING:
        return None
    try:
        return said.data.decode()
    except UnicodeDecodeError:
        return None


async def _encoded_identity(said: Payload) -> str | None:
    """A header that the SDK has encoded in the workflow, and does not decode in the activity.

    That is what `HeaderCodecBehavior.WORKFLOW_ONLY_CODEC` does.
    """
    info = activity.info()
    context = ActivitySerializationContext(
        namespace=info.namespace,
        activity_id=info.activity_id,
        activity_type=info.activity_type,
        activity_task_queue=info.task_queue,
        workflow_id=info.workflow_id,
        workflow_type=info.workflow_type,
        is_local=info.is_local,
    )
    default = DataConverter.default.payload_converter_class
    try:
        used = dataclasses.replace(activity.client().data_converter, payload_converter_class=default)
        (found,) = await used.with_context(context).decode([said], [RawValue])
    except Exception:  # noqa: BLE001 (a codec of anybody's, for a header that may be another key's)
        return None
    return _read_identity(found.payload) if isinstance(found, RawValue) else None
