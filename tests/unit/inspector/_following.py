"""A page that follows a conversation, without a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.inspector.live import LiveConversation, LiveRenderer
from helix_temporal.inspector.page_request import InspectorSettings, PageLinks, PageRequest
from helix_temporal.inspector.shown_place import find_place
from helix_temporal.models.messages import Message
from helix_temporal.stores.memory.usage import MemoryUsage
from tests._sessions import memory_place
from tests.unit.views._scene import Scene, Writer, scene_over


@dataclass
class Followed:
    """A session, and a page that follows it.

    Attributes:
        writer: Writes the turns.
        conversation: What the page is sent.
    """

    scene: Scene
    writer: Writer
    renderer: LiveRenderer
    conversation: LiveConversation

    async def read_thread(self) -> str:
        """What the page is sent of the thread."""
        return str(await self.conversation.read_thread())


@asynccontextmanager
async def following(*first_turn: Message) -> AsyncIterator[Followed]:
    """The session ``s`` with one turn, which was there when the page was loaded."""
    async with memory_place()() as place:
        scene = scene_over(place, MemoryUsage())
        writer = await scene.begin("s")
        await writer.turn(*first_turn)
        links = PageLinks(create_inspector(scene.stores).router)
        renderer = LiveRenderer("s", PageRequest(scene.views, Viewer(), InspectorSettings(), "", links))
        page = await scene.views.read_turns("s")
        shown = await find_place(scene.views, page, len(first_turn))
        conversation = LiveConversation(scene.views, "s", shown, renderer)
        yield Followed(scene, writer, renderer, conversation)
