"""Every activity is broken at every boundary by some test: one that is added without is noticed here."""

import ast
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.architecture._project import MODULES, PACKAGE, ROOT, relative
from tests.chaos._all_scenes import SCENES

ELSEWHERE: Final = {
    # Each is one call of the lock manager, whose servers keep crashing there.
    "tests/contracts/test_locks_restarts.py": frozenset(
        {"helix.locks.acquire", "helix.locks.refresh", "helix.locks.release"}
    ),
    # Page after page, each attempt from where the last one was.
    "tests/unit/test_cleanup_activities.py": frozenset(
        {"helix.cleanup.expired", "helix.cleanup.old", "helix.cleanup.operations"}
    ),
    # Workflow code that is not ours asks for them: a worker is killed there, and each is done again.
    "tests/frameworks/test_langgraph_workflow.py": frozenset(
        f"helix.langgraph.{each}" for each in ("delete", "history", "list", "load", "open", "save")
    ),
    # The boundaries of these are Temporal's own.
    "tests/workflows/test_children_apart.py": frozenset({"helix.sessions.has_started"}),
    # An attempt is lost before it, and one after it, under a conversation that goes on.
    "tests/frameworks/test_pydantic_ai_workflow.py": frozenset(
        {"helix.pydantic_ai.load", "helix.pydantic_ai.save"}
    ),
    "tests/frameworks/test_google_adk_workflow.py": frozenset(
        f"helix.google_adk.{each}"
        for each in (
            "append_event",
            "create_session",
            "delete_session",
            "invoke_model",
            "list_sessions",
            "read_session",
            "read_user_state",
        )
    ),
    # A crash at each commit and at each request to the archive.
    "helix_temporal/testing/contracts/_records_archive.py": frozenset({"helix.maintenance.keep_records"}),
    # They need the framework's environment: worker processes are killed before and after each of them.
    "tests/frameworks/test_temporalio_openai_agents_kills.py": frozenset(
        {"helix.openai_agents.open", "helix.openai_agents.append", "helix.openai_agents.cut"}
    ),
    # What it answers is what it found: a repeat finds less.
    "tests/workflows/test_deletion.py": frozenset({"helix.sessions.erase"}),
    "tests/workflows/test_waking.py": frozenset({"helix.maintenance.wake"}),
}
"""Activities whose fault points are in other tests than the kill points (tests/chaos/test_points.py)."""

_NAMED_BY_AGENTS: Final = {"activities/tools.py": ("helix.tools", "helix.hooks")}
"""Activities whose names come from agents: one for all tools, one for all hooks."""


def _read_constants(tree: ast.Module) -> dict[str, Any]:
    return {
        target.target.id: ast.literal_eval(target.value)
        for target in tree.body
        if isinstance(target, ast.AnnAssign)
        and isinstance(target.target, ast.Name)
        and isinstance(target.value, ast.Constant)
    }


def _defined() -> Iterator[str]:
    """The names of all activities in the package."""
    for path in MODULES:
        text = path.read_text()
        if "activity.defn" not in text:
            continue
        tree = ast.parse(text)
        constants = _read_constants(tree)
        for each in tree.body:
            if isinstance(each, ast.ImportFrom) and (each.module or "").startswith(PACKAGE.name):
                imported = (ROOT / str(each.module).replace(".", "/")).with_suffix(".py")
                if imported.is_file():
                    constants |= _read_constants(ast.parse(imported.read_text()))
        computed = 0
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "activity.defn"):
                continue
            name = next(each.value for each in call.keywords if each.arg == "name")
            if isinstance(name, ast.Constant):
                yield str(name.value)
            elif isinstance(name, ast.Name) and name.id in constants:
                yield constants[name.id]
            else:
                computed += 1
        known = next((names for end, names in _NAMED_BY_AGENTS.items() if relative(path).endswith(end)), ())
        assert computed == len(known), f"{relative(path)}: {computed} activities with computed names"
        yield from known


def test_every_activity_has_fault_points() -> None:
    """Temporal runs each of them again, whenever it likes: what happens then must have been tried."""
    defined = set(_defined())
    covered = {each.activity for each in SCENES.values()}.union(*ELSEWHERE.values())
    assert len(defined) > 70
    assert defined - covered == set(), "add a scene to tests/chaos/_…_scenes.py"
    assert covered - defined == set(), "these are no activities any more"


def test_no_activity_is_excused_that_has_a_scene() -> None:
    """The list of those that are broken elsewhere stays as short as it can be."""
    assert {each.activity for each in SCENES.values()}.isdisjoint(set().union(*ELSEWHERE.values()))


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_breaks_the_others_exists(path: str) -> None:
    """A test that was moved must not leave its activities behind."""
    assert (ROOT / path).is_file()
