"""Boards and alerts name what workers give out: a query of a metric that nobody has is silent for ever."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml

from tests.workflows._metered import Metered, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT: Final = Path(__file__).parents[2]
BOARD: Final = ROOT / "deploy/telemetry/grafana/dashboards/helix-temporal.json"
ALERTS: Final = ROOT / "deploy/telemetry/prometheus/alerts.yml"
_LABEL_VALUES: Final = re.compile(r"label_values\((.*), (\w+)\)")


@dataclass
class Asked:
    """What a query asks for: label names by metric, and those by which it groups or matches."""

    labels: dict[str, set[str]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)


def ask(query: str) -> Asked:
    """What a query asks for; what Grafana puts in is put in."""
    query = re.sub(r"\$(job|namespace|agent)", ".*", query.replace("$__rate_interval", "5m"))
    asked = Asked()

    def look(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None
            asked.labels.setdefault(node.name, set()).update(each.name for each in node.matchers.matchers)
        if isinstance(node, promql_parser.AggregateExpr | promql_parser.BinaryExpr) and node.modifier:
            by = node.modifier if isinstance(node, promql_parser.AggregateExpr) else node.modifier.matching
            asked.grouped.update([] if by is None else by.labels)
        return True

    promql_parser.walk(promql_parser.parse(query), look)
    return asked


def of_board() -> Iterator[str]:
    """All queries of the board."""
    board = json.loads(BOARD.read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    for variable in board["templating"]["list"]:
        found = _LABEL_VALUES.fullmatch(variable["query"]["query"])
        assert found is not None
        yield f"group by ({found[2]}) ({found[1]})"


def rules() -> list[dict[str, Any]]:
    """All rules, recording ones among them."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


QUERIES: Final = sorted({*of_board(), *(rule["expr"] for rule in rules())})
ALERT_RULES: Final = {rule["alert"]: rule for rule in rules() if "alert" in rule}


@pytest.fixture(scope="session")
def emitted(metered: Metered) -> dict[str, set[str]]:
    """Labels by metric that Prometheus would have, with those of its own and of recording rules."""
    found: dict[str, set[str]] = {}
    for each in fetch(metered.address):
        found.setdefault(each.name, {"instance", "job"}).update(each.labels)
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = ask(rule["expr"]).grouped
    return found


@pytest.mark.parametrize("query", QUERIES)
async def test_a_query_asks_for_what_is_there(emitted: dict[str, set[str]], query: str) -> None:
    """Metrics and labels, as a real worker gives them out."""
    asked = ask(query)
    assert asked.labels
    assert asked.labels.keys() <= emitted.keys()
    for metric, labels in asked.labels.items():
        assert labels <= emitted[metric], metric
    there = set().union(*(emitted[metric] for metric in asked.labels))
    assert asked.grouped <= there


async def test_a_wrong_query_is_noticed(emitted: dict[str, set[str]]) -> None:
    """A check that cannot fail proves nothing."""
    wrong = ask('sum by (agnet) (rate(helix_turn_total{oucome="x"}[5m]))')
    assert wrong.labels == {"helix_turn_total": {"oucome"}}
    assert wrong.grouped == {"agnet"}
    assert "helix_turn_total" not in emitted


@pytest.mark.parametrize("query", sorted({*of_board()}))
async def test_installations_of_one_name_are_told_apart(query: str) -> None:
    """Their jobs differ: a panel shows the chosen ones, and one's gauge must not hide another's."""
    assert query.startswith("group by (job)") or query.count('job=~"$job"') == query.count("{")
    assert "topk by (job, " in query or "topk" not in query


async def test_an_alert_of_a_group_names_its_installation() -> None:
    """`absent_over_time` alone has nothing to name."""
    grouped = {name: ask(rule["expr"]).grouped for name, rule in ALERT_RULES.items()}
    assert [name for name, labels in grouped.items() if labels and "job" not in labels] == []


UNARCHIVED: Final = [query for query in QUERIES if "helix_archive_unarchived" in query]


@pytest.mark.parametrize("query", UNARCHIVED)
async def test_what_is_unarchived_is_taken_from_the_worker_that_told_it_last(query: str) -> None:
    """One whose sweep ended later may have failed before it saw anything: it has nothing new to tell."""
    asked = ask(query)
    assert "helix_archive_unarchived_timestamp_seconds" in asked.labels
    assert not [name for name in asked.labels if name.startswith("helix_maintenance")]


@pytest.mark.parametrize("name", ALERT_RULES)
async def test_an_alert_says_what_to_do(name: str) -> None:
    """At night nobody reads code."""
    notes = ALERT_RULES[name]["annotations"]
    page, anchor = notes["runbook"].split("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}
    assert notes["summary"]
    assert notes["description"]


async def test_there_are_eight_alerts() -> None:
    """Each more is one that somebody learns to ignore."""
    assert len(ALERT_RULES) == 8
