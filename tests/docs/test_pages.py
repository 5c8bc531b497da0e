"""Pages that are true: their code runs, their links lead somewhere, their tables name what is there."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import helix_temporal
from helix_temporal import activities
from helix_temporal.settings import Limits, Settings, Timeouts
from tests.docs._pages import PAGES, ROOT, anchors, blocks, links, name, titled

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
RECIPES = [(page, block) for page in PAGES if page != README for block in blocks(page, "python")]


def run_python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as its own program, where nothing of the project lies around."""
    script = directory / "block.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_snippet_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """It is the first thing that anybody tries."""
    (snippet,) = blocks(README, "python")
    ran = run_python(snippet, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "It is on its way.\n", "")


def test_the_snippet_of_the_readme_is_short() -> None:
    """Fifteen lines are read, thirty are not."""
    (snippet,) = blocks(README, "python")
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 15


def test_the_program_that_uses_a_thread_without_temporal_runs_as_it_stands(tmp_path: Path) -> None:
    """A store is tried by itself before anybody trusts it with workflows."""
    programs = dict(titled(ROOT / "docs" / "own-workflow.md", "python"))
    ran = run_python(programs["threads.py"], tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Where is it?\nOn its way.\n", "")


def test_a_workflow_of_ones_own_is_served_and_started_as_the_page_says(
    temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """The first example has three parts on one page: the class, who starts it, and the worker that has it."""
    page = ROOT / "docs" / "own-workflow.md"
    programs, (note, *_) = dict(titled(page, "python")), blocks(page, "python")
    mine = programs["worker.py"].partition("@workflow.defn")[2].partition("\n\n\nasync def main")[0]
    worker = programs["worker.py"].replace(f"@workflow.defn{mine}", note.strip()).replace("[Mine]", "[Note]")
    (tmp_path / "worker.py").write_text(worker)
    (tmp_path / "start.py").write_text(programs["start.py"].replace("note-1", unique))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_NAME": unique,
    }
    serving = subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, env=environment)
    try:
        started = subprocess.run(
            [sys.executable, "start.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (started.returncode, started.stdout) == (0, "1\n"), started.stderr
    finally:
        serving.kill()
        serving.wait()


def test_programs_import_from_the_first_door_what_it_has() -> None:
    """Readers copy the imports: a second path to a name makes them wonder which one is meant."""
    untitled = [(name(page), block) for page in PAGES for block in blocks(page, "python")]
    snippets = [*untitled, *((name(page), block) for page in PAGES for _, block in titled(page, "python"))]
    files = [(name(path), path.read_text()) for path in sorted(ROOT.glob("examples/**/*.py"))]
    around = [
        f"{where}: {alias.name} from {node.module}"
        for where, code in [*snippets, *files]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helix_temporal.")
        for alias in node.names
        if alias.name in helix_temporal.__all__
    ]
    assert around == []


def test_programs_print_something_of_a_turn_without_an_answer() -> None:
    """One that ends at ``max_steps`` has neither text nor error: ``None`` tells nobody why."""
    programs = [*ROOT.glob("examples/**/*.py"), *PAGES]
    silent = [
        name(each) for each in programs if re.search(r"text or answer\.error(?! or )", each.read_text())
    ]
    assert silent == []


def test_the_readme_fits_on_two_screens() -> None:
    """Depth belongs to docs/."""
    assert len(README.read_text().splitlines()) <= 110


@pytest.mark.parametrize(
    ("page", "block"), RECIPES, ids=[f"{name(page)}-{at}" for at, (page, _) in enumerate(RECIPES)]
)
def test_a_recipe_runs_as_it_stands(page: Path, block: str, tmp_path: Path) -> None:
    """A recipe that fails is worse than none."""
    ran = run_python(block, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, ""), name(page)


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    """Files are renamed, links stay behind."""
    broken = []
    for page, link in [(each, link) for each in PAGES for link in links(each)]:
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{name(page)}: {link}")
    assert broken == []


def test_targets_of_make_that_pages_name_are_there() -> None:
    """``make`` says "no rule" and nothing else."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (name(page), target)
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(), re.MULTILINE)
    }
    assert [each for each in sorted(named) if each[1] not in targets] == []


def test_the_page_of_settings_has_every_variable_and_no_other() -> None:
    """A variable that is not written down does not exist; one that is misspelt there is ignored."""
    known = {
        *(f"HELIX_{field.upper()}" for field in Settings.model_fields.keys() - {"timeouts", "limits"}),
        *(f"HELIX_TIMEOUT_{field.upper()}" for field in Timeouts.model_fields),
        *(f"HELIX_LIMIT_{field.upper()}" for field in Limits.model_fields),
    }
    page = (ROOT / "docs" / "settings.md").read_text()
    assert set(re.findall(r"^\| `(HELIX_[A-Z0-9_]+)`", page, re.MULTILINE)) == known | {"HELIX_AGENTS"}


def test_the_page_of_own_workflows_has_the_input_of_every_activity() -> None:
    """Whoever calls one looks its input up there."""
    page = (ROOT / "docs" / "own-workflow.md").read_text()
    rows = re.findall(r"^\| `([A-Za-z]+)` \| (`[a-z_]+\(.*) \| (`models.*) \|$", page, re.MULTILINE)
    found = {name: (set(words(calls)), set(words(modules))) for name, calls, modules in rows}
    assert "ThreadActivities" in found
    assert found == {name: activity_inputs(getattr(activities, name)) for name in found}


def activity_inputs(holder: type) -> tuple[set[str], set[str]]:
    """Its activities, each with the class of its input, and the modules of these classes."""
    methods = {each: inspect.unwrap(getattr(holder, each)) for each in dir(holder)}
    kinds = {
        name: get_type_hints(method)["request"]
        for name, method in methods.items()
        if hasattr(getattr(holder, name), "__temporal_activity_definition")
    }
    calls = {f"{name}({kind.__name__})" for name, kind in kinds.items()}
    return calls, {kind.__module__.removeprefix("helix_temporal.") for kind in kinds.values()}


def words(cell: str) -> list[str]:
    """What is in backquotes in a cell of a table."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_decision_is_in_the_list() -> None:
    """One that is not listed is not found."""
    pages = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    assert set(links(ROOT / "docs" / "adr" / "README.md")) == pages


def test_every_guarantee_names_a_test() -> None:
    """A promise that nothing breaks on purpose is a hope."""
    rows = re.findall(
        r"^\| (I\d+) \|.*\|(.*)\|$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE
    )
    assert [row for row, _ in rows] == [f"I{number}" for number in range(1, 15)]
    assert [row for row, tests in rows if "](../" not in tests and "`make" not in tests] == []
