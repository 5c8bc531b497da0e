"""Tools: what the model is told of a function, and what becomes of a call."""

import asyncio
import threading
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from helix_temporal.agents import Tool, ToolContext, ToolOutcome, client_tool, tool
from helix_temporal.errors import InvalidConfigError, InvalidMessageError
from tests.unit.agents._play import a_context


class Item(BaseModel):
    sku: str
    quantity: int = 1


@tool
async def order(items: list[Item], *, copy: Annotated[int, Field(ge=1)] = 1, on: date | None = None) -> str:
    """Order things.

    They are sent at once.

    Args:
        items: What to order,
            all of it.
        copy (int): How often.
        on: Not before.

    Returns:
        A receipt.
    """
    return f"{copy} x {items[0].sku} on {on}"


def test_the_description_is_the_docstring_without_its_sections() -> None:
    """Sections about parameters go where the model looks for them."""
    assert order.description == "Order things.\n\nThey are sent at once."


def test_the_schema_is_that_of_the_signature() -> None:
    """Models keep to a schema that says all there is to say."""
    schema: Any = order.parameters
    assert schema["required"] == ["items"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["copy"] == {
        "default": 1,
        "minimum": 1,
        "type": "integer",
        "description": "How often.",
    }
    assert schema["properties"]["items"]["description"] == "What to order, all of it."
    assert schema["$defs"]["Item"]["required"] == ["sku"]


async def test_arguments_become_the_annotated_types() -> None:
    """A tool gets dates and models, not strings and dicts."""
    arguments = {"items": [{"sku": "B-1"}], "copy": 2, "on": "2025-03-14"}
    assert await order.call_handler(arguments, a_context()) == ToolOutcome("2 x B-1 on 2025-03-14")


async def test_wrong_arguments_are_an_error_result_that_names_them() -> None:
    """The model mends its call; the session goes on."""
    outcome = await order.call_handler(
        {"items": [{"quantity": 1}], "copy": 0, "colour": "secret"}, a_context()
    )
    assert outcome.is_error
    assert outcome.content == (
        "invalid arguments: items.0.sku: Field required; "
        "copy: Input should be greater than or equal to 1; colour: Extra inputs are not permitted"
    )


async def test_a_flood_of_wrong_arguments_is_cut() -> None:
    """An error result is paid for with each model call that follows."""
    outcome = await order.call_handler({"items": [{}] * 50}, a_context())
    assert str(outcome.content).endswith("; and 40 more")


async def test_the_context_parameter_is_filled_and_hidden() -> None:
    """The model must not choose the idempotency key."""

    @tool
    def keyed(text: str, context: ToolContext) -> str:
        return f"{text} {context.key}"

    assert set(keyed.parameters["properties"]) == {"text"}  # type: ignore[arg-type]
    assert (await keyed.call_handler({"text": "a"}, a_context(key="k-7"))).content == "a k-7"


async def test_an_optional_context_counts_as_context() -> None:
    """So that the function can be called by hand without one."""

    @tool
    def keyed(context: ToolContext | None = None) -> str:
        return context.key if context else ""

    assert (await keyed.call_handler({}, a_context(key="k-7"))).content == "k-7"


async def test_plain_functions_run_in_a_thread() -> None:
    """A blocking tool in the event loop would stop the heartbeats of all others."""

    @tool
    def where() -> int:
        return threading.get_ident()

    assert (await where.call_handler({}, a_context())).content != str(threading.get_ident())


async def test_what_a_tool_raises_passes_through() -> None:
    """Whether a failure is tried again is not the tool's to decide."""

    @tool
    async def broken() -> str:
        Item.model_validate({})
        return ""

    with pytest.raises(ValueError, match="sku"):
        await broken.call_handler({}, a_context())


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        (None, "null"),
        ({"ö": [1, True, 2.5]}, '{"ö":[1,true,2.5]}'),
        (Item(sku="B-1"), '{"sku":"B-1","quantity":1}'),
        ([Item(sku="B-1")], '[{"sku":"B-1","quantity":1}]'),
        ({"at": date(2025, 3, 14), "sum": Decimal("1.10")}, '{"at":"2025-03-14","sum":"1.10"}'),
        (ToolOutcome("no", is_error=True), "no"),
        (ToolOutcome([{"type": "text", "text": "a"}]), [{"type": "text", "text": "a"}]),
    ],
)
async def test_results_become_text_for_the_model(result: object, content: object) -> None:
    """Tools return what they have."""
    given = Tool(name="give", handler=lambda _arguments, _context: result)
    assert (await given.call_handler({}, a_context())).content == content


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"order": {"when": date(2025, 3, 14)}}, "not JSON: date at tool 'look': state.order.when"),
        ({"seen": [1, {2}]}, r"not JSON: set at tool 'look': state.seen\[1\]"),
        ({1: "a"}, "string keys expected, got int at tool 'look': state"),
        (["a"], "tool 'look': state: a dictionary expected, got list"),
    ],
)
async def test_a_state_that_is_not_json_is_named_with_its_tool_and_key(state: Any, said: str) -> None:
    """Whoever reads it finds the line to mend."""

    @tool
    def look() -> ToolOutcome:
        """Look."""
        return ToolOutcome("", state=state)

    with pytest.raises(InvalidMessageError, match=said):
        await look.call_handler({}, a_context())


@pytest.mark.parametrize(
    "result",
    [
        None,
        {"paid": 12.5},
        [],
        ["a"],
        [{"sku": "B-1"}],
        [Item(sku="B-1")],
        Item(sku="B-1"),
        {"at": date(2025, 3, 14)},
        date(2025, 3, 14),
    ],
)
async def test_content_of_an_outcome_is_taken_as_a_plain_result_is(result: object) -> None:
    """A state beside it must not make a failure of a tool that has done its work."""
    plain = Tool(name="give", handler=lambda _arguments, _context: result)
    beside = Tool(name="give", handler=lambda _arguments, _context: ToolOutcome(result, state={"a": 1}))
    told = await plain.call_handler({}, a_context())
    assert await beside.call_handler({}, a_context()) == ToolOutcome(told.content, state={"a": 1})


async def test_values_in_parts_become_json() -> None:
    """Parts stay parts."""
    part = {"type": "text", "text": "a", "at": date(2025, 3, 14)}
    given = Tool(name="give", handler=lambda _arguments, _context: ToolOutcome([part]))
    assert (await given.call_handler({}, a_context())).content == [{**part, "at": "2025-03-14"}]


async def test_a_usage_of_another_type_is_named() -> None:
    """In the façade the whole turn was lost; on a worker the tool ran three times."""
    wrong: Any = {"input_tokens": 5}
    bad = Tool(name="give", handler=lambda _arguments, _context: ToolOutcome(usage=wrong))
    with pytest.raises(InvalidMessageError, match="tool 'give': usage: Usage expected, got dict"):
        await bad.call_handler({}, a_context())


async def test_tuples_of_a_state_are_lists() -> None:
    """As JSON has them."""
    given: Any = {"t": (1, (2,))}
    good = Tool(name="give", handler=lambda _arguments, _context: ToolOutcome("", state=given))
    assert (await good.call_handler({}, a_context())).state == {"t": [1, [2]]}


@pytest.mark.parametrize("result", [float("nan"), object(), "a\x00", {"n": 2**70}])
@pytest.mark.parametrize("wrap", [lambda result: result, ToolOutcome], ids=["plain", "outcome"])
async def test_results_that_no_store_keeps_are_refused(
    result: object, wrap: Callable[[object], object]
) -> None:
    """Better here, with the tool's name, than in a store."""
    bad = Tool(name="give", handler=lambda _arguments, _context: wrap(result))
    with pytest.raises(InvalidMessageError, match="give"):
        await bad.call_handler({}, a_context())


def _unannotated(order_id) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return str(order_id)


def _unknown(order_id: object()) -> str:  # type: ignore[valid-type]
    return str(order_id)


def _unresolved(order_id: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(order_id)


def _function_type(order_id: Callable[[int], int]) -> str:
    return str(order_id)


def _variadic(*order_id: int) -> str:
    return str(order_id)


def _keywords(**order_id: int) -> str:
    return str(order_id)


def _positional(order_id: int, /) -> str:
    return str(order_id)


def _field_default(order_id: int = Field(ge=1)) -> str:
    return str(order_id)


@pytest.mark.parametrize(
    "function",
    [_unannotated, _unknown, _unresolved, _function_type, _variadic, _keywords, _positional, _field_default],
)
def test_a_parameter_without_usable_type_is_refused_by_name(function: Callable[..., str]) -> None:
    """At definition, not in a session."""
    with pytest.raises(InvalidConfigError, match="'order_id'"):
        tool(function)


async def test_parameters_may_have_any_name() -> None:
    """Names that pydantic keeps for itself are common: copy, json, schema, model_id, _x."""

    @tool
    def named(json: str, schema: str, model_id: str, _x: int = 0) -> str:
        return json + schema + model_id + str(_x)

    assert (
        await named.call_handler({"json": "a", "schema": "b", "model_id": "c", "_x": 1}, a_context())
    ).content == "abc1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "tool name 'a b'"),
        ({"name": ""}, "tool name ''"),
        ({"name": "x" * 65}, "1-64"),
        ({"timeout": 0}, "timeout must be a positive"),
        ({"timeout": float("inf")}, "timeout must be a positive"),
        ({"heartbeat": -1}, "heartbeat must be a positive"),
        ({"deadline": float("nan")}, "deadline must be a positive"),
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"attempts": True}, "attempts must be at least 1"),
    ],
)
def test_options_outside_what_is_allowed_are_refused(options: dict[str, Any], message: str) -> None:
    """At definition, with the tool's name."""
    with pytest.raises(InvalidConfigError, match=message):
        tool(**options)(_nothing)


def _nothing() -> str:
    return ""


def test_the_workflow_is_told_how_to_run_it() -> None:
    """Times are seconds on the wire, whatever the user wrote."""
    timed = tool(name="refund", timeout=timedelta(minutes=1), heartbeat=5, attempts=7, deadline=90.5)(
        _nothing
    )
    facts = timed.build_facts("support")
    assert facts.model_dump(exclude_unset=True) == {
        "name": "refund",
        "activity": "helix.tools.support.refund",
        "start_to_close": 60.0,
        "heartbeat": 5.0,
        "max_attempts": 7,
        "schedule_to_close": 90.5,
    }


async def test_a_decorated_function_can_still_be_called() -> None:
    """For its own tests."""
    assert await order([Item(sku="B-1")]) == "1 x B-1 on None"


async def test_calls_side_by_side_do_not_wait_for_each_other() -> None:
    """Tools of one step run in parallel, plain functions too."""
    barrier = threading.Barrier(2, timeout=10)

    @tool
    def meet() -> int:
        return barrier.wait()

    outcomes = await asyncio.gather(meet.call_handler({}, a_context()), meet.call_handler({}, a_context()))
    assert sorted(str(outcome.content) for outcome in outcomes) == ["0", "1"]


def test_a_client_tool_made_of_a_function_keeps_what_is_said_beside_it() -> None:
    """Its time to answer was dropped: the call waited for ever."""

    def confirm(amount: int) -> None:
        """Confirm a payment."""
        raise AssertionError(amount)

    @client_tool(answer_within=60)
    def decorated(amount: int) -> None:
        """Confirm a payment."""
        raise AssertionError(amount)

    for made in (client_tool(confirm, answer_within=60), decorated):
        assert (made.description, made.answer_within) == ("Confirm a payment.", 60.0)
    assert client_tool(confirm, description="Pay").description == "Pay"
    with pytest.raises(InvalidConfigError, match="the function's own are used"):
        client_tool(confirm, parameters={"type": "object"})  # type: ignore[call-overload]
