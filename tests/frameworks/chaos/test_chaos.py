"""Sessions of each framework under kills, wipes and roll-backs: what was acknowledged outlasts them.

Of the environment's framework (`.ci/frameworks`), for some seconds; ``HELIX_CHAOS_SECONDS`` makes it longer
and ``HELIX_CHAOS_SEEDS`` runs several.
"""

import importlib.metadata
import os
from pathlib import Path

import pytest

from helix_temporal.devstack import Valkey
from tests import _postgres, _services
from tests.frameworks.chaos.campaign import Campaign
from tests.frameworks.chaos.ledger import Turn
from tests.frameworks.chaos.oracle import Loss, find_violations

ADAPTERS = {
    "openai_agents": "openai-agents",
    "claude_agent_sdk": "claude-agent-sdk",
    "agent_framework": "agent-framework-core",
    "google_adk": "google-adk",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic-ai-slim",
    "strands_agents": "strands-agents",
}
"""With the distribution of each; an environment has one of them."""
IN_MESSAGES = set(ADAPTERS) - {"langgraph", "strands_agents"}
"""The others are in records: of PostgreSQL, whatever Redis loses."""
INSTALLED = {each.name.lower() for each in importlib.metadata.distributions()}
HERE = [name for name, distribution in ADAPTERS.items() if distribution in INSTALLED]
SECONDS = float(os.environ.get("HELIX_CHAOS_SECONDS", "8"))
SEEDS = range(1, 1 + int(os.environ.get("HELIX_CHAOS_SEEDS", "1")))


@pytest.mark.slow
@pytest.mark.timeout(240 + 4 * SECONDS)
@pytest.mark.parametrize("adapter", HERE)
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_acknowledged_stands_once_and_in_order(
    adapter: str, seed: int, own_valkey: Valkey, postgres_dsn: str, unique: str, tmp_path: Path
) -> None:
    """Of three processes that append to one session; the archive alone has the same."""
    prefix = _postgres.own_prefix("chaos")
    variables = {
        "PATH": os.environ["PATH"],
        "HELIX_ALLOW_PLAINTEXT": "true",
        "HELIX_POSTGRES_DSN": postgres_dsn,
        "HELIX_TABLE_PREFIX": prefix,
        "HELIX_REDIS_URL": own_valkey.url,
        **_services.service("s3"),
        "HELIX_S3_PREFIX": unique,
    }
    async with _postgres.emptied(postgres_dsn, prefix):
        report = await Campaign(adapter, variables, tmp_path, seed).run(SECONDS)
    assert report.violations == [], report
    assert report.acknowledged - report.excused > 10, report
    assert (report.faults["sweep: archived"] > 0) == (adapter in IN_MESSAGES), report
    assert min(report.faults[name] for name in ("kill", "sweep", "wipe", "roll back", "s3")) > 0


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["a-0 q", "a-0 a", "a-1 q", "a-1 a"], []),
        (["a-0 q", "a-0 a"], ["a-1 was acknowledged and is lost"]),
        (["a-0 q", "a-0 a", "a-1 q"], ["a-1 stands in half", "a-1 was acknowledged and is lost"]),
        (["a-0 q", "a-0 a", "a-1 q", "a-1 a", "a-1 a"], ["a-1 a stands 2 times"]),
        (["a-1 q", "a-1 a", "a-0 q", "a-0 a"], ["turns of a are out of order"]),
        (["a-0 q", "a-1 q", "a-0 a", "a-1 a"], ["a turn stands in pieces", "turns of a are out of order"]),
    ],
)
def test_the_oracle_sees_each_kind_of_damage(found: list[str], expected: list[str]) -> None:
    """And nothing where there is none."""
    assert find_violations([Turn("a", 0, 4, 5), Turn("a", 1, 8, 9)], found, []) == expected


def test_only_what_redis_alone_had_may_be_lost() -> None:
    """What was acknowledged after the last sweep, and begun before the loss was over."""
    turns = [Turn("a", number, 10 * number - 2, 10 * number) for number in range(5)]
    found = ["a-0 q", "a-0 a"]
    lost = find_violations(turns, found, [Loss(since=15, at=29)])
    assert lost == ["a-1 was acknowledged and is lost", "a-4 was acknowledged and is lost"]
