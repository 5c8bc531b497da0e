"""The session workflow on a real Temporal server, with Redis and S3."""

import uuid

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, tool
from helix_temporal.client import SessionClient
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect


class Echo:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith("add "):
            _, a, b = last.text.split()
            return ModelResponse(
                tool_calls=(ToolCall(id="call_0", name="add", arguments={"a": int(a), "b": int(b)}),)
            )
        return ModelResponse(content=f"{len(request.messages)}: {last.text}")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_slice(settings: Settings) -> None:
    agent = Agent(name="echo", model=Echo(), tools=[add])
    client, plugin = await connect(settings, [agent])
    async with HelixWorker(client, plugin):
        sessions = SessionClient(
            client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=60)
        )
        sid = f"s-{uuid.uuid4().hex[:6]}"
        r = await sessions.ask(sid, "hello", agent="echo")
        print(r)
        assert r.status is AskStatus.ANSWERED and r.text == "1: hello"
        r = await sessions.ask(sid, "add 2 3", agent="echo")
        print(r)
        print(await sessions.status(sid))
        await sessions.close(sid)
        res = await sessions.result(sid)
        print(res)
        assert await plugin.backends.hot.header(sid) is None
        r = await sessions.ask(sid, "again", agent="echo")
        print(r)
        print([(m.role, m.text) for m in await sessions.messages(sid)])
        print(await sessions.fork(sid, sid + "-f"))
        r = await sessions.ask(sid + "-f", "forked", agent="echo")
        print(r)
        await sessions.close(sid)
        await sessions.close(sid + "-f")
        await sessions.result(sid)
        await sessions.result(sid + "-f")
