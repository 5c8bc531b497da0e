"""The agents of a lamp shop, their tools, and the script that stands in for a model."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from helix_temporal import (
    Agent,
    Compaction,
    ContextPolicy,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolOutcome,
    Usage,
    agent_tool,
    tool,
)
from helix_temporal.agents import ModelEvent, TextDelta

INSTRUCTIONS: Final = """\
You are the support agent of a shop for lamps. Be brief and friendly.

- Look at the order before you say anything about it.
- Never promise a refund before a colleague has approved it.
- Ask the researcher about warranty and known faults."""

LABEL_IS_READY: Final = """\
Your return label is ready: **RL-99120**. The carrier picks the parcel up on **Monday, 30 November**.

Please put into the parcel:

- both broken lamps, with their bulbs
- the printed label, on the outside
- order number `4711` on a slip of paper

As soon as it has been scanned I will ask for the refund of 79.80 €."""

WARRANTY: Final = """\
Yes: **36 months**, until November 2029. The flicker is a known fault of firmware 2.1 below 20 % brightness:

```
1. Hold the button for 8 seconds until the lamp blinks twice.
2. Open the app, choose “Update”, then version 2.2.
3. Leave the lamp switched on for a minute.
```

If it still flickers afterwards, we replace it."""

ASK_RETURN: Final = "Two of the five lamps arrived broken. I would like to return those and keep the others."
SUNDAY, MONDAY = "2026-11-29", "2026-11-30"
ASK_DIMMER: Final = "Can I dim the LUX-20 with any dimmer?"
ASK_VAT: Final = "Is this VAT number right: ATU99999999?"
ASK_WARRANTY: Final = "Is there a warranty on the three I keep? They flicker sometimes."
ASK_REFUND: Final = "The parcel was scanned this morning. When do I get my money back?"


class CarrierError(Exception):
    """The carrier refused."""


@tool
async def find_order(order: str) -> ToolOutcome:
    """An order with its lines and how far it is."""
    await asyncio.sleep(0.12)
    lines: list[Any] = [{"sku": "LUX-20", "count": 5, "price": "39.90"}]
    found: dict[str, Any] = {
        "id": order,
        "placed": "2026-11-21",
        "status": "delivered",
        "lines": lines,
        "carrier": "DHL",
    }
    return ToolOutcome(json.dumps(found), state={"order": found, "checked": [order]})


@tool(attempts=1)
async def create_return_label(order: str, sku: str, count: int, pickup_date: str = SUNDAY) -> ToolOutcome:
    """A label for what comes back."""
    await asyncio.sleep(0.4)
    if pickup_date == SUNDAY:
        raise CarrierError("422: 'pickup_date' 2026-11-29 is a Sunday; the next possible one is 2026-11-30")
    label = {"label": "RL-99120", "order": order, "sku": sku, "count": count, "pickup": pickup_date}
    lines: list[Any] = [{"sku": sku, "keep": 3, "return": count}]
    changed: dict[str, Any] = {"id": order, "status": "return_requested", "lines": lines}
    state: dict[str, Any] = {"label": "RL-99120", "order": changed}
    return ToolOutcome(json.dumps(label), state=state)


@tool(approval=True)
def refund(order: str, amount: str, currency: str, reason: str) -> str:
    """Give money back."""
    return f"{amount} {currency} of order {order} are on their way: {reason}"


@tool
async def search_policy(words: str) -> str:
    """The shop's rules."""
    await asyncio.sleep(0.08)
    return f"Rules about {words}: broken goods may be returned within 30 days; the shop pays for the parcel."


@tool
async def read_manual(sku: str) -> str:
    """A lamp's manual."""
    await asyncio.sleep(0.3)
    return f"{sku}: warranty of 36 months. Firmware 2.1 flickers below 20 % brightness; 2.2 repairs it."


@tool(attempts=1)
async def look_up_vat(country: str, number: str) -> str:
    """Whether a VAT number is valid."""
    raise TimeoutError(f"the VAT service of {country} did not answer for {number} within 30 s")


def _asks(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=name, name=name, arguments=arguments)


def _says(text: str, *asked: ToolCall) -> ModelResponse:
    return ModelResponse(text, tool_calls=asked)


SCRIPT: Final[Mapping[str, Sequence[ModelResponse]]] = {
    ASK_DIMMER: [
        _says("", _asks("search_policy", words="LUX-20 dimmer")),
        _says("With any trailing-edge dimmer, yes. Leading-edge ones make it hum below 30 %."),
    ],
    "And when does my parcel arrive?": [
        _says("", _asks("find_order", order="4711")),
        _says("It was delivered on 27 November at 10:14, and left with your neighbour."),
    ],
    ASK_RETURN: [
        _says(
            "I am sorry about that. Let me look at the order and make a label.",
            _asks("find_order", order="4711"),
            _asks("create_return_label", order="4711", sku="LUX-20", count=2),
        ),
        _says("", _asks("create_return_label", order="4711", sku="LUX-20", count=2, pickup_date=MONDAY)),
        _says(LABEL_IS_READY),
    ],
    ASK_WARRANTY: [
        _says("", _asks("ask_researcher", task="Warranty terms of LUX-20, and known faults: flicker")),
        _says(WARRANTY),
    ],
    ASK_REFUND: [
        _says(
            "I have asked a colleague to confirm the refund.",
            _asks("refund", order="4711", amount="79.80", currency="EUR", reason="2 lamps broken on arrival"),
        ),
        _says("Done: 79.80 € are on their way."),
    ],
    ASK_VAT: [
        _says("", _asks("look_up_vat", country="AT", number="ATU99999999")),
        _says("The service does not answer; I have noted the number and will look again in an hour."),
    ],
    "Warranty terms of LUX-20, and known faults: flicker": [
        _says("", _asks("read_manual", sku="LUX-20")),
        _says("LUX-20 has 36 months. Firmware 2.1 flickers below 20 % brightness; version 2.2 repairs it."),
    ],
}  # fmt: skip
NOTED: Final = _says("I have noted it, and a colleague will call you today.")


class Clerk:
    """A model that answers by `SCRIPT`, word by word; what is not in it, it answers with a sentence."""

    model = "claude-sonnet-4-5"

    def __init__(self, seconds_per_word: float) -> None:
        self._pause = seconds_per_word

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The next answer to the newest message of a user."""
        await asyncio.sleep(0.05)
        spoken = [at for at, each in enumerate(request.messages) if each.role == "user"]
        newest = request.messages[spoken[-1]]
        if newest.text.startswith("Wait"):
            await asyncio.sleep(600)
        answers = SCRIPT.get(newest.text.strip(), [NOTED])
        given = sum(each.role == "assistant" for each in request.messages[spoken[-1] :])
        answer = answers[min(given, len(answers) - 1)]
        if self._pause:
            for word in re.findall(r"\S+\s*", str(answer.content)):
                yield TextDelta(word)
                await asyncio.sleep(self._pause)
        words = sum(len(each.text) for each in request.messages) // 3 + 2_600
        used = Usage(
            input_tokens=words,
            cached_read_tokens=words * 6 // 10,
            output_tokens=40 + len(answer.content) // 3,
        )
        yield ModelResponse(answer.content, tool_calls=answer.tool_calls, usage=used)


class Summariser:
    """Sums conversations up."""

    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 (always the same)
        """Always the same."""
        return ModelResponse(
            "The customer bought five LUX-20 (order 4711) on 21 November. Dimming is answered; the parcel "
            "arrived on the 27th and was left with the neighbour."
        )


def make_agents(seconds_per_word: float = 0.0) -> list[Agent]:
    """Support with its researcher, and billing; answers come whole, or word by word."""
    clerk = Clerk(seconds_per_word)
    researcher = Agent(
        name="researcher", model=clerk, instructions="Answer from manuals alone.", tools=[read_manual]
    )
    asking = agent_tool("ask_researcher", agent=researcher)
    support = Agent(
        name="support",
        model=clerk,
        instructions=INSTRUCTIONS,
        tools=[find_order, create_return_label, refund, search_policy, asking],
        context=ContextPolicy(max_messages=14),
        compaction=Compaction(at_messages=10, keep_turns=2, model=Summariser()),
    )
    billing = Agent(
        name="billing", model=clerk, instructions="You answer about invoices.", tools=[look_up_vat]
    )
    return [support, researcher, billing]


AGENTS: Final = make_agents(seconds_per_word=0.06)
