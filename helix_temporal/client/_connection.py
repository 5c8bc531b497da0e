"""SessionConnection: what a client and all its handles talk to sessions by."""

from collections.abc import Mapping
from typing import Final

from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from helix_temporal._deployments import asking_for, settings_of, speaking_for
from helix_temporal.client._diagnosis import Diagnosis
from helix_temporal.client._reads import SessionReader
from helix_temporal.client._streams import stream_store_of
from helix_temporal.client._updates import Updates
from helix_temporal.models.sessions import CallPolicy, SessionOptions
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.streams import StreamStore


class SessionConnection:
    """A deployment's sessions over one Temporal client; the arguments are those of `SessionClient`.

    Attributes:
        client: Of Temporal, as the deployment's workers expect it.
        task_queue: Where the session workers listen.
        deployment: Whose the sessions are.
        also_known_as: Identities that are the same deployment.
        options: For executions that are started.
        diagnosis: Says why a session does not answer.
        updates: Sends updates to sessions.
        reader: Reads threads and states.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str | None,
        options: SessionOptions | None,
        search_attributes: Mapping[str, SearchAttributeKey[str]] | None,
        policy: CallPolicy | None,
        streams: StreamStore | None,
        stores: ReadableStores | None,
    ) -> None:
        settings = settings_of(client) or Settings()
        self.deployment: Final = asking_for(settings, task_queue)
        self.client: Final = speaking_for(client, self.deployment)
        self.task_queue: Final = task_queue or settings.task_queue
        self.also_known_as: Final = settings.also_known_as
        self.options: Final = options or SessionOptions()
        self._plugins = client.config(active_config=True)["plugins"]
        self._streams = streams
        place = (self.client, self.task_queue)
        # Workers without a queue of their own settings poll the default one.
        queues = {settings.task_queue, Settings().task_queue}
        self.diagnosis: Final = Diagnosis(*place, queues, self.deployment.name)
        self.updates: Final = Updates(
            *place, search_attributes or {}, self.deployment, self.also_known_as, self.diagnosis
        )
        self.reader: Final = SessionReader(
            *place, policy or _policy_of(settings), self.deployment, self.diagnosis, stores
        )

    @property
    def streams(self) -> StreamStore:
        """Where sessions are shown live.

        Raises:
            InvalidConfigError: No stream store is known.
        """
        if self._streams is None:
            self._streams = stream_store_of(self._plugins)
        return self._streams


def _policy_of(settings: Settings) -> CallPolicy | None:
    """What the settings of the client's plugin say, None where they say nothing of their own."""
    return None if settings.timeouts == Timeouts() else settings.call_policy
