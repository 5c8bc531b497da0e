"""Rules that scripts and statements repeat: where they stand is named beside the rule, and is there."""

import re
from pathlib import Path

from helix_temporal.stores.threads import fences, operations

STORES = Path(operations.__file__).parents[1]
FOLDERS = {".lua": STORES / "redis" / "lua", ".sql": STORES / "postgres" / "sql"}
DOC = operations.__doc__ or ""


def test_every_script_that_is_named_is_there() -> None:
    """Whoever follows the list finds something."""
    names = re.findall(r"``(\w+\.(?:lua|sql))``", DOC)
    assert len(names) > 15
    assert [each for each in names if not (FOLDERS[Path(each).suffix] / each).is_file()] == []


def test_every_rule_that_is_named_is_there() -> None:
    """A rule that was renamed is renamed in the list."""
    rules = [each for each in re.findall(r"`(\w+)`(?!`)", DOC) if each != "HotTier"]
    assert len(rules) > 8
    assert [each for each in rules if not hasattr(operations, each)] == []
    assert "`fences.Fence.find_refusal`" in DOC
    assert hasattr(fences.Fence, "find_refusal")
