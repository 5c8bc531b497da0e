"""SessionClient: what an application calls."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Unpack

from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from helix_temporal._arguments import typed_arguments, typed_call
from helix_temporal.activities import SessionReads, UsageActivities
from helix_temporal.agents.checks import check_type
from helix_temporal.client._connection import SessionConnection
from helix_temporal.client._handle import AskOptions, SendOptions, SessionHandle, StreamOptions
from helix_temporal.models.sessions import AskResult, CallPolicy, SessionOptions
from helix_temporal.models.store_calls import Page, SessionQuery, SessionSummary
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.usage import UsageEntry, UsageQuery
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.streams import StreamStore


class SessionClient:
    """Makes handles on sessions, which start them when they are not running, and answers what spans sessions.

    Args:
        client: Connected with `HelixPlugin`.
        task_queue: Where the session workers listen; by default as the settings of the client's `HelixPlugin`
            say.  The deployment's name and stores are those of these settings; whoever names no stores is of
            the deployment that listens on ``task_queue``.
        options: For executions that this client starts: those that are named count,
            and the session remembers them; the others are as it remembers them from before.
        search_attributes: Keys of a session's metadata that become search attributes of its workflow;
            they must be registered with the server.
        policy: Time-outs and retries of reads, forks and long texts; by default those of the settings that
            the client's `HelixPlugin` was given.
        streams: Where sessions are shown live; by default where the settings of the client's `HelixPlugin`
            have it.  Whoever gives one closes it; the plugin's is closed with ``plugin.backends``.
        stores: Where the workers have sessions, if this process reaches it.  `list_sessions`, `query_usage`
            and a handle's reads, except `list_children`, `get_status` and `get_pending_calls`, then read
            these stores instead of having a worker do so: of any size, and without retries.  A
            `SessionStores`, or a `helix_temporal.backends.Backends`; whoever gives it closes it.

    Raises:
        InvalidConfigError: ``client``, ``options`` or ``policy`` is something else.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str | None = None,
        options: SessionOptions | None = None,
        search_attributes: Mapping[str, SearchAttributeKey[str]] | None = None,
        policy: CallPolicy | None = None,
        streams: StreamStore | None = None,
        stores: ReadableStores | None = None,
    ) -> None:
        check_type(client, Client, "client")
        if options is not None:
            check_type(options, SessionOptions, "options")
        if policy is not None:
            check_type(policy, CallPolicy, "policy")
        self._connection = SessionConnection(
            client,
            task_queue=task_queue,
            options=options,
            search_attributes=search_attributes,
            policy=policy,
            streams=streams,
            stores=stores,
        )

    @typed_call
    def session(self, session_id: str, *, agent: str | None = None) -> SessionHandle:
        """A handle on one session; whether it is there shows when it is used, see `SessionHandle`.

        Args:
            session_id: Which.
            agent: With which it is started where it does not run.
        """
        return SessionHandle(self._connection, session_id, agent)

    @typed_arguments
    async def ask(
        self, session_id: str, text: str, *, agent: str | None = None, **options: Unpack[AskOptions]
    ) -> AskResult:
        """As `SessionHandle.ask`."""
        return await self.session(session_id, agent=agent).ask(text, **options)

    @typed_arguments
    async def send(
        self, session_id: str, text: str, *, agent: str | None = None, **options: Unpack[SendOptions]
    ) -> str:
        """As `SessionHandle.send`."""
        return await self.session(session_id, agent=agent).send(text, **options)

    @typed_call
    def stream(self, session_id: str, **options: Unpack[StreamOptions]) -> AsyncGenerator[StoredChunk]:
        """As `SessionHandle.stream`."""
        return self.session(session_id).stream(**options)

    @property
    def temporal(self) -> Client:
        """The client of Temporal by which sessions are asked."""
        return self._connection.client

    @property
    def streams(self) -> StreamStore:
        """Where sessions are shown live.

        Raises:
            InvalidConfigError: No stream store is known.
        """
        return self._connection.streams

    @typed_arguments
    async def list_sessions(self, query: SessionQuery | None = None, **filters: Any) -> Page[SessionSummary]:
        """A page of sessions that match, by the session store's index; ``next_cursor`` leads on.

        Args:
            query: Which; its ``cursor`` is the ``next_cursor`` of the page before.
            filters: Instead, or over it: fields of a `SessionQuery` (``user_id``, ``tags``, ``status``, …).

        Raises:
            InvalidCursorError: The cursor is none that a list with these filters gave.
            InvalidRequestError: The workers have no session store; or a filter is none that there is.
            NoWorkerError: No worker answers.
        """
        wanted = (query or SessionQuery()).model_copy(update=SessionQuery(**filters).named())
        return await self._connection.reader.look_up(SessionReads.find, wanted)

    @typed_arguments
    async def query_usage(self, query: UsageQuery | None = None, **filters: Any) -> Page[UsageEntry]:
        """A page of usage entries of all sessions that match, by time; ``next_cursor`` leads on.

        Args:
            query: Which; its ``cursor`` is the ``next_cursor`` of the page before.
            filters: Instead, or over it: fields of a `UsageQuery` (``kinds``, ``session_id``, ``since``, …).

        Raises:
            InvalidCursorError: The cursor is none that `query_usage` gave.
            InvalidRequestError: A filter is none that there is.
            NoWorkerError: No worker answers.
        """
        named = UsageQuery(**filters)
        update = {name: getattr(named, name) for name in named.model_fields_set}
        wanted = (query or UsageQuery()).model_copy(update=update)
        return await self._connection.reader.look_up(UsageActivities.query, wanted)
