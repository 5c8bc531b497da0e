"""A thread that is begun with one provider and goes on with others."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from helix_temporal.adapters.google import GoogleModel
from helix_temporal.adapters.openai_chat import OpenAIChatModel
from helix_temporal.adapters.openai_responses import OpenAIResponsesModel
from helix_temporal.models.messages import Message
from tests.adapters import _anthropic as claude
from tests.adapters import _google as gemini
from tests.adapters import _openai as gpt
from tests.adapters._openai import answered, asking, result, said, user
from tests.adapters._standin import Reply, StandIn

SKIPPED = gemini.signature(b"skip_thought_signature_validator")
SIGNED = gemini.signature(b"of gemini")
THOUGHT = [
    gpt.reasoning_item("Paris, then."),
    gpt.call_item("call_A", "weather", '{"city": "Paris"}'),
]
WENT = [
    {"text": "Rome and Oslo.", "thought": True},
    gemini.call("weather", {"city": "Rome"}, thoughtSignature=SIGNED),
    gemini.call("weather", {"city": "Oslo"}),
]


@dataclass
class Thread:
    """A thread and who answers it; every answer and result is kept as a store gives it back."""

    standin: StandIn
    messages: list[Message]

    async def turn(self, model: Any, reply: Reply, text: str) -> Message:
        """The user says something, the model answers, its tools give their name."""
        self.messages.append(user(text, f"u{len(self.messages)}"))
        self.standin.will(reply)
        response, _ = await said(model, asking(*self.messages, step_key=f"t/1/{len(self.messages)}"))
        answer = answered(response, f"a{len(self.messages)}")
        at = len(self.messages)
        self.messages.append(answer)
        for place, call in enumerate(answer.tool_calls):
            city = str(call.arguments["city"])
            self.messages.append(result(call.id, f"sun in {city}", f"r{at}-{place}", name=call.name))
        return answer


@pytest.fixture
async def models(standin: StandIn) -> AsyncIterator[dict[str, Any]]:
    """All adapters, talking to one stand-in."""
    async with gpt.client_of(standin) as openai_client, gemini.client_of(standin) as google_client:
        yield {
            "responses": OpenAIResponsesModel("gpt-5", openai_client),
            "chat": OpenAIChatModel("gpt-5", openai_client),
            "google": GoogleModel("gemini-3", google_client),
            "anthropic": claude.model(standin),
        }


@pytest.fixture
async def thread(standin: StandIn, models: dict[str, Any]) -> Thread:
    """OpenAI has called one tool, Gemini two, Claude has answered."""
    begun = Thread(standin, [])
    await begun.turn(models["responses"], gpt.responses(*THOUGHT), "Paris?")
    await begun.turn(models["google"], gemini.gemini(gemini.piece(*WENT, finish="STOP")), "And others?")
    await begun.turn(models["anthropic"], claude.says(claude.text("Sunny.")), "So?")
    standin.asked.clear()
    return begun


async def test_openai_gets_its_own_reasoning_back_and_the_rest_in_its_form(
    thread: Thread, models: dict[str, Any], standin: StandIn
) -> None:
    """It goes on from what it thought itself; of what others thought it sees nothing."""
    await thread.turn(models["responses"], gpt.responses(gpt.text_item("ok")), "More?")

    sent = standin.bodies[0]["input"]
    rome, oslo = thread.messages[4].tool_calls
    assert sent[1:3] == THOUGHT
    assert sent[3:] == [
        {"type": "function_call_output", "call_id": "call_A", "output": "sun in Paris"},
        {"role": "user", "content": "And others?"},
        {"type": "function_call", "call_id": rome.id, "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call", "call_id": oslo.id, "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": rome.id, "output": "sun in Rome"},
        {"type": "function_call_output", "call_id": oslo.id, "output": "sun in Oslo"},
        {"role": "user", "content": "So?"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "More?"},
    ]


async def test_gemini_gets_its_own_signatures_back_and_the_rest_in_its_form(
    thread: Thread, models: dict[str, Any], standin: StandIn
) -> None:
    """Its own calls go back without the ids that we gave them; those of others are marked as such."""
    await thread.turn(models["google"], gemini.gemini_text("ok"), "More?")

    def response(city: str) -> dict[str, Any]:
        return {"functionResponse": {"name": "weather", "response": {"output": f"sun in {city}"}}}

    assert gemini.contents_of(standin.asked[0]) == [
        {"role": "user", "parts": [{"text": "Paris?"}]},
        {"role": "model", "parts": [gemini.call("weather", {"city": "Paris"}, thoughtSignature=SKIPPED)]},
        {"role": "user", "parts": [response("Paris"), {"text": "And others?"}]},
        {"role": "model", "parts": WENT},
        {"role": "user", "parts": [response("Rome"), response("Oslo"), {"text": "So?"}]},
        {"role": "model", "parts": [{"text": "Sunny."}]},
        {"role": "user", "parts": [{"text": "More?"}]},
    ]


async def test_claude_and_chat_find_every_call_answered(
    thread: Thread, models: dict[str, Any], standin: StandIn
) -> None:
    """Whoever goes on sees all calls of all others, each with its result."""
    await thread.turn(models["anthropic"], claude.says(claude.text("ok")), "More?")
    await thread.turn(models["chat"], gpt.chat_text("ok"), "More?")

    blocks = [block for message in standin.bodies[0]["messages"] for block in message["content"]]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    chat = standin.bodies[1]["messages"]
    called = [call["id"] for message in chat for call in message.get("tool_calls", ())]
    made = [call.id for message in thread.messages for call in message.tool_calls]
    assert used == called == made
    assert used == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert called == [message["tool_call_id"] for message in chat if message["role"] == "tool"]
    assert "of gemini" not in str(standin.bodies)
    assert "encrypted" not in str(chat)
