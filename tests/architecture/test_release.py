"""What a release is made of: the check of its tag and files, the workflow that publishes it, the image."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.core import TyperGroup
from typer.main import get_command

from helix_temporal.cli.commands import app
from tests.architecture._project import ROOT

CHECK = ROOT / ".ci" / "release-check"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
DOCKERFILE = ROOT / "workers" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]
SAYS_A_VERSION = (
    "pyproject.toml",
    "CHANGELOG.md",
    "docker-bake.json",
    "workers/Dockerfile",
    "deploy/helm/helix-temporal/Chart.yaml",
)


def run_check(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The check as it stands in a tree."""
    return subprocess.run(
        [sys.executable, str(tree / ".ci" / "release-check"), *arguments],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of the next release, its changelog's heading set."""
    for name in (*SAYS_A_VERSION, ".ci/release-check"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## Unreleased", f"## {VERSION} (2030-01-31)", 1))
    return tmp_path


def test_a_tag_that_fits_is_let_through(tree: Path) -> None:
    """What everything says is one version."""
    ran = run_check(tree, "version", f"v{VERSION}")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", SAYS_A_VERSION)
def test_a_file_of_another_version_is_named(tree: Path, name: str) -> None:
    """A chart of another version installs another image."""
    (tree / name).write_text((tree / name).read_text().replace(VERSION, "9.8.7"))
    ran = run_check(tree, "version", f"v{VERSION}")
    assert ran.returncode == 1
    assert name in ran.stderr


def test_a_tag_of_another_version_is_refused(tree: Path) -> None:
    """Also one without its v, which the workflow would not run for."""
    assert "0.0.9 expected" in run_check(tree, "version", "v0.0.9").stderr
    assert f"v{VERSION} expected" in run_check(tree, "version", VERSION).stderr


def test_a_version_without_notes_is_refused(tree: Path) -> None:
    """The heading alone says nothing to anybody."""
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION}\n\n## 0.0.1\n\n* Something\n")
    assert f"no text under '## {VERSION}'" in run_check(tree, "version", f"v{VERSION}").stderr


def test_notes_are_those_of_the_version_alone(tree: Path) -> None:
    """Release 0.1.0 is not 0.1.0.1 or 0.1, and ends where the next heading begins."""
    sections = {"0.1.0.1": "next", "0.1.0 (2030-01-31)": "mine\n\n### Fixed\n\n* it", "0.1": "before"}
    text = "\n\n".join(f"## {heading}\n\n{notes}" for heading, notes in sections.items())
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{text}\n")
    ran = run_check(tree, "notes", "0.1.0")
    assert (ran.returncode, ran.stdout) == (0, "mine\n\n### Fixed\n\n* it\n")


@pytest.fixture
def dist(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(built, tmp_path / "dist"))


def test_what_is_built_holds_the_package(dist: Path) -> None:
    """Scripts and statements too: what is left out fails in production only."""
    ran = run_check(ROOT, "files", str(dist))
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("ending", [".sql", ".lua", "py.typed"])
def test_a_wheel_that_lacks_a_file_is_refused(dist: Path, ending: str) -> None:
    """The check above can fail, and names the file."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    left_out = next(name for name in kept if name.endswith(ending))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in kept.keys() - {left_out}:
            archive.writestr(name, kept[name])
    ran = run_check(ROOT, "files", str(dist))
    assert (ran.returncode, left_out in ran.stderr) == (1, True)


def test_an_sdist_that_lacks_a_file_is_refused(dist: Path) -> None:
    """Its wheel is built elsewhere, by whoever takes no wheels."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(dist / "x", filter="data")
    top = next((dist / "x").iterdir())
    (top / "constraints.txt").unlink()
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(top, top.name)
    shutil.rmtree(dist / "x")
    assert "lacks constraints.txt" in run_check(ROOT, "files", str(dist)).stderr


def test_a_stray_file_is_not_published(dist: Path) -> None:
    """Whatever lies there is uploaded."""
    (dist / "helix_temporal-0.0.1.tar.gz").touch()
    ran = run_check(ROOT, "files", str(dist))
    assert (ran.returncode, "expected" in ran.stderr) == (1, True)


# --- the workflow ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    """The parsed workflow; YAML reads its `on` as true."""
    parsed: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text())
    return parsed


def test_only_a_tag_publishes(workflow: dict[Any, Any]) -> None:
    """No push, no pull request, no button."""
    assert workflow[True] == {"push": {"tags": ["v*"]}}


def test_a_job_has_the_rights_that_it_uses(workflow: dict[Any, Any]) -> None:
    """A stolen token of the tests publishes nothing."""
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "build": {"contents": "read"},
        "test": {"contents": "read"},
        "chart": {"contents": "read"},
        "publish-package": {"id-token": "write"},
        "publish-image": {"contents": "read"},
        "publish-chart": {"id-token": "write", "attestations": "write"},
        "notes": {"contents": "write"},
    }


def test_whoever_publishes_waits_for_the_tests(workflow: dict[Any, Any]) -> None:
    """A version is published once, and cannot be taken back."""
    jobs = workflow["jobs"]

    def before(name: str) -> Iterator[str]:
        needed = jobs[name].get("needs", [])
        for each in [needed] if isinstance(needed, str) else needed:
            yield each
            yield from before(each)

    publishing = [name for name, job in jobs.items() if name.startswith("publish") or name == "notes"]
    assert len(publishing) == 4
    assert [name for name in publishing if not {"build", "test", "chart"} <= {*before(name)}] == []
    assert [name for name in publishing[:3] if jobs[name].get("environment") is None] == []


def test_what_is_published_was_built_once_and_tested(workflow: dict[Any, Any]) -> None:
    """The same files: those of the artifact."""
    builds = [name for name, job in workflow["jobs"].items() if "-m build" in json.dumps(job)]
    assert builds == ["build"]
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"python": ["3.11", "3.12", "3.13", "3.14"], "artifact": ["wheel", "sdist"]}


def test_actions_of_the_release_are_pinned_by_commit_with_their_version() -> None:
    """A tag can be moved to other code, and a commit without its version is never renewed."""
    used = re.findall(r"uses: (\S+)(.*)", WORKFLOW.read_text())
    assert [each for each in used if not re.search(r"@[0-9a-f]{40}$", each[0])] == []
    assert [each for each in used if not re.fullmatch(r" # v\d+\.\d+\.\d+", each[1])] == []


def test_an_action_has_one_commit_everywhere() -> None:
    """Two of them would be renewed one at a time."""
    texts = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = {action for text in texts for action in re.findall(r"uses: (\S+)", text)}
    assert len({action.partition("@")[0] for action in used}) == len(used)


def test_what_a_step_runs_is_not_put_together_from_names(workflow: dict[Any, Any]) -> None:
    """A tag may hold what a shell runs; it comes as a variable."""
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert [run for run in runs if "${{" in run] == []


def test_the_programs_of_the_workflow_are_there(workflow: dict[Any, Any]) -> None:
    """It runs for the first time when everybody waits for it."""
    runs = " ".join(
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    )
    scripts = set(re.findall(r"\.ci/[\w-]+", runs))
    assert scripts == {".ci/release-check", ".ci/release-test"}
    assert [each for each in scripts if not (ROOT / each).stat().st_mode & 0o100] == []


def test_without_go_the_check_of_the_chart_says_what_to_install(tmp_path: Path) -> None:
    """It fails rather than checking nothing."""
    ran = subprocess.run(
        [ROOT / ".ci" / "go-tool", "", "helm.sh/helm/v3/cmd/helm@v3.22.0", tmp_path / "helm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "Install Go 1.26" in ran.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


# --- the image -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bake() -> dict[str, Any]:
    """The definition of the image for buildx."""
    parsed: dict[str, Any] = json.loads((ROOT / "docker-bake.json").read_text())
    return parsed


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's lines, joined, as instruction and rest."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    lines = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(name, rest.strip()) for name, _, rest in lines]


def test_the_image_is_for_two_architectures_and_says_what_is_in_it(bake: dict[str, Any]) -> None:
    """With where it was built from, and a list of its parts."""
    (target,) = bake["target"].values()
    assert target["platforms"] == ["linux/amd64", "linux/arm64"]
    assert target["attest"] == ["type=provenance,mode=max", "type=sbom"]
    assert (ROOT / target["dockerfile"]).exists()
    used = set(re.findall(r"\$\{(\w+)\}", json.dumps(target)))
    assert used == bake["variable"].keys()


def test_the_image_takes_the_arguments_that_it_is_given(
    bake: dict[str, Any], instructions: list[tuple[str, str]]
) -> None:
    """An argument that no stage declares is ignored."""
    declared = {rest.partition("=")[0] for name, rest in instructions if name == "ARG"}
    assert bake["target"]["workers"]["args"].keys() <= declared


def test_no_step_of_the_image_names_an_architecture(instructions: list[tuple[str, str]]) -> None:
    """What is built for one is built for the other."""
    steps = " ".join(rest for _, rest in instructions)
    assert re.findall(r"amd64|arm64|x86_64|aarch64|--platform|TARGETARCH", steps) == []


def test_the_base_image_has_a_version_that_is_supported(instructions: list[tuple[str, str]]) -> None:
    """All three numbers of it, and the Debian below; one for both stages."""
    (base,) = {rest.split("=")[1] for name, rest in instructions if (name, rest[:7]) == ("ARG", "PYTHON=")}
    found = re.fullmatch(r"(\d+\.\d+)\.\d+-slim-[a-z]+", base)
    assert found
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]
    bases = [rest.split()[0] for name, rest in instructions if name == "FROM"]
    assert bases == ["python:${PYTHON}", "python:${PYTHON}"]


def test_the_image_runs_as_nobody_in_particular(instructions: list[tuple[str, str]]) -> None:
    """The same number as in the chart; a name would be refused by runAsNonRoot."""
    (user,) = (rest for name, rest in instructions if name == "USER")
    security = yaml.safe_load((ROOT / "deploy/helm/helix-temporal/values.yaml").read_text())[
        "podSecurityContext"
    ]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    names = [name for name, _ in instructions]
    assert names.index("USER") > max(index for index, name in enumerate(names) if name in {"RUN", "COPY"})


def test_the_health_check_and_the_command_are_commands(instructions: list[tuple[str, str]]) -> None:
    """A check that is none makes every container unhealthy."""
    said = dict(instructions)
    asked, _, otherwise = said["HEALTHCHECK"].partition("CMD ")[2].partition(" || ")
    program, command, probe = asked.split()
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert program in PROJECT["scripts"]
    assert {command, *json.loads(said["CMD"])} <= group.commands.keys()
    assert json.loads(said["ENTRYPOINT"]) == [program]
    assert "HELIX_HEALTH_PORT=" in said["ENV"]
    # Docker Swarm and others kill what is unhealthy: not a worker whose store is away, or that drains.
    assert probe == "live"
    assert otherwise == "exit 1"


@pytest.mark.parametrize("port", ["nonsense", "1"])
def test_docker_is_told_healthy_or_not_and_nothing_else(
    port: str, instructions: list[tuple[str, str]]
) -> None:
    """Docker keeps status 2 for itself, which is that of wrong settings in the commands' table."""
    check = dict(instructions)["HEALTHCHECK"].partition("CMD ")[2]
    scripts = Path(sys.executable).parent
    found = subprocess.run(
        ["sh", "-c", check],
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "HELIX_HEALTH_PORT": port},
        capture_output=True,
        check=False,
    )
    assert found.returncode == 1, found.stderr


def test_extras_that_pages_name_are_there() -> None:
    """`EXTRAS=anthropic,web` of a page is copied as it stands."""
    pages = [DOCKERFILE, *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    named = {
        extra
        for page in pages
        for group in re.findall(r"EXTRAS=([\w,-]+)", page.read_text())
        for extra in group.split(",")
    }
    assert named
    assert named - PROJECT["optional-dependencies"].keys() == set()


def test_the_supported_versions_of_the_policy_are_those_of_the_package() -> None:
    """The page says the bounds; the package enforces them."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    bounds = {Requirement(each).name: Requirement(each) for each in PROJECT["dependencies"]}
    for name in ("temporalio", "pydantic", "redis", "asyncpg", "aioboto3"):
        lowest = next(each.version for each in bounds[name].specifier if each.operator == ">=")
        assert re.search(rf"\| `{name}` \| {re.escape(lowest)} ", page), name
