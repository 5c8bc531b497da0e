"""An application with the inspector and a session's events in it, as a server of its own serves it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from helix_temporal.backends import Backends
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.models.states import CreateSession
from helix_temporal.models.streams import RunStarted
from helix_temporal.settings import Settings
from helix_temporal.web import create_sse_app
from tests.unit._web import streams_alone, write


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Stores in this process, with a session that has begun a turn."""
    stores = Backends(Settings())
    assert stores.streams is not None
    await stores.sessions.create_session("s1", CreateSession())
    await write(stores.streams, RunStarted(turn=1))
    app.mount("/inspector", create_inspector(stores, authorise=lambda request: Viewer()))
    app.mount("/web", create_sse_app(streams_alone(stores.streams)))
    yield
    await stores.close()


app = Starlette(lifespan=lifespan)
