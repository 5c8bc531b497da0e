"""Entries of usage: what is filled in, what is refused, what is written."""

from decimal import Decimal, localcontext
from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.usage import CustomUsageEntry, TokenCounts, TokenUsageEntry, UsageRollup
from helix_temporal.stores.usage import from_body, roll_up, to_body
from helix_temporal.testing.contracts._usage_base import a_custom, a_tool_call, one_of_each, some_tokens


@pytest.mark.parametrize(
    ("given", "total"),
    [
        ({"prompt": 3, "completion": 2}, 5),
        ({"prompt": 3, "completion": 2, "reasoning": 9, "cached": 9}, 5),
        ({"prompt": 3, "total": 9}, 9),
        ({"prompt": 3, "total": None}, 3),
        ({}, 0),
    ],
)
def test_a_missing_total_is_prompt_and_completion(given: dict[str, Any], total: int) -> None:
    """What the provider says stands; reasoning and cached tokens are parts of the others."""
    assert TokenCounts(**given).total == total


@pytest.mark.parametrize(
    ("given", "shown"),
    [("1E+3", "1000"), (Decimal("2.50"), "2.50"), (7, "7"), ("0.000000000000000001", "1E-18")],
)
def test_money_keeps_its_digits(given: object, shown: str) -> None:
    """Never a float on the way, nor an exponent that hides zeros."""
    entry = some_tokens("s", cost_usd=given)
    assert str(entry.cost_usd) == shown
    assert from_body(to_body(entry), "here") == entry


@pytest.mark.parametrize(
    "amount",
    [0.5, True, None, "0.5x", "", " 1", "1_000", "NaN", "Infinity", "1e-19", "1e18", 2**63, -(2**63) - 1,
     Decimal("NaN"), Decimal("sNaN"), Decimal("1e400"), Decimal("1e-400"), "9" * 41, b"1", [1]],
    ids=ascii,
)  # fmt: skip
def test_an_amount_that_is_no_exact_number_is_refused(amount: Any) -> None:
    """The message names the field and never the value."""
    with pytest.raises(InvalidRequestError, match=r"^amount: "):
        a_custom("s", amount=amount)


def test_a_refused_value_is_not_shown() -> None:
    """A key pasted into the wrong field would otherwise be in every log."""
    with pytest.raises(InvalidRequestError) as caught:
        some_tokens("s", cost_usd="sk-secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("at", range(4))
def test_an_entry_is_read_as_it_was_written(at: int) -> None:
    """All kinds, all fields, as bytes."""
    entry = one_of_each("s")[at]
    assert from_body(to_body(entry), "here") == entry


def test_a_field_of_a_newer_version_is_ignored() -> None:
    """Workers of two versions share a store while one replaces the other."""
    body = to_body(some_tokens("s"))
    newer = body.replace(b'"model"', b'"later":{"a":1},"model"')
    assert from_body(newer, "here") == some_tokens("s")


def test_an_entry_of_a_version_that_counted_no_attempts_is_read() -> None:
    """Stores hold entries for as long as their sessions."""
    body = to_body(a_tool_call("s"))
    older = body.replace(b'"attempts":1,', b"")
    assert older != body
    assert from_body(older, "here") == a_tool_call("s")


def test_entries_are_frozen() -> None:
    """What was recorded is not changed behind the store's back."""
    entry = some_tokens("s")
    with pytest.raises(ValueError, match="frozen"):
        entry.model = "other"  # type: ignore[misc]


def test_sums_do_not_depend_on_the_callers_decimal_context() -> None:
    """An application that computes with five digits must not round our money."""
    entries = [some_tokens("s", number, cost_usd=Decimal("123456.789")) for number in range(3)]
    with localcontext(prec=5):
        rollup = roll_up({"s": entries})
    assert rollup is not None
    assert rollup.cost_usd == Decimal("370370.367")


def test_sums_may_exceed_what_an_entry_may_hold() -> None:
    """Two entries at the limit must not make a session's sums unreadable."""
    most = TokenCounts(prompt=2**63 - 1, total=2**63 - 1)
    rollup = roll_up({"s": [some_tokens("s", number, tokens=most) for number in range(2)]})
    assert rollup is not None
    assert rollup.tokens.total == 2**64 - 2
    assert UsageRollup.model_validate_json(rollup.model_dump_json(exclude_unset=True)) == rollup


def test_the_kind_is_written_though_nobody_set_it() -> None:
    """Histories leave out what was not set; without its kind an entry could not be read."""
    entries = [
        TokenUsageEntry(id="1", session_id="s", timestamp=1, model="m"),
        CustomUsageEntry(id="1", session_id="s", timestamp=1, metric="m", key="k"),
    ]
    kinds = [entry.model_dump(exclude_unset=True)["kind"] for entry in entries]
    assert kinds == ["tokens", "custom"]
