"""Rules that scripts and statements repeat: each copy names its rule, and each rule says who has copies.

A copy stands below ``rule:`` and the rule's name, as a comment of its language.  A rule that has copies says
in a comment right above it which backends have one: ``# copies: redis, postgres``.
"""

import ast
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import helix_temporal

PACKAGE: Final = Path(helix_temporal.__file__).parent
STORES: Final = PACKAGE / "stores"
BACKENDS: Final = ("memory", "sqlite", "redis", "postgres")
SCRIPTS: Final = sorted(
    each
    for backend in BACKENDS
    for folder in ("lua", "sql")
    for each in (STORES / backend / folder).glob("*")
)
COPIES_LIE_IN: Final = [*SCRIPTS, *(each for backend in BACKENDS for each in (STORES / backend).glob("*.py"))]

MARKER: Final = re.compile(r"^ *(?:--|#) rule: ([a-z_]+(?:\.\w+)+)$", re.MULTILINE)
LIKE_A_MARKER: Final = re.compile(r"(?:--|#).*\brule\b *:", re.IGNORECASE)
DECLARATION: Final = re.compile(r"^ *# copies: ((?:\w+, )*\w+)$")
LIKE_A_DECLARATION: Final = re.compile(r"^ *# *copies\b", re.IGNORECASE | re.MULTILINE)

COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_FIELD: Final = r"(?:\[(?:EPOCH|CLOSED|VERSION|REVISION|FENCE|TOKEN)\]|\brevision\b)"
_COLUMN: Final = r"\b[a-z]\.(?:epoch|max_epoch|rev|revision|slice_version|fence|fencing_token)\b"
COMPARISONS: Final = {
    ".lua": re.compile(rf"{_FIELD}[ )']*(?:==|~=|<|>)|(?:==|~=|<=?|>=?)[ (\w]*{_FIELD}"),
    ".sql": re.compile(rf"{_COLUMN},?\s*(?:[=<>]|\$\d)|\bNOT [a-z]\.closed\b|\bcoalesce\([a-z]\.fence\b"),
}
"""What compares a writer with who may write: its epoch, fence, token, or the version that it has read."""

OWN: Final = {"index_update.lua"}
"""The index of lists is Redis's own: no other backend has one, and no rule in Python."""


def markers(files: list[Path]) -> list[tuple[str, Path]]:
    """The rules that copies name, and where the copies are."""
    return [(name, file) for file in files for name in MARKER.findall(file.read_text("utf-8"))]


@cache
def declarations() -> dict[str, set[str]]:
    """The rules that have copies, and the backends that have them."""
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text("utf-8")
        if LIKE_A_DECLARATION.search(text):
            module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
            lines, names = text.splitlines(), dict(functions_of(ast.parse(text)))
            for number, line in enumerate(lines, 1):
                if LIKE_A_DECLARATION.search(line):
                    told = DECLARATION.match(line)
                    assert told, f"{file}:{number}: write it as `# copies: redis, postgres`"
                    assert number + 1 in names, f"{file}:{number}: no function stands right below"
                    found[f"{module}.{names[number + 1]}"] = set(told[1].split(", "))
    return found


def functions_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each function of a module, and of its classes."""
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
                yield first, f"{node.name}.{each.name}" if isinstance(node, ast.ClassDef) else each.name


def statements_of(file: Path) -> list[str]:
    """The statements of a file: one, or those that begin with ``-- name:``."""
    text = file.read_text("utf-8")
    return re.split(r"^-- name: ", text, flags=re.MULTILINE) if file.parts[-3] == "sqlite" else [text]


def compares(text: str, suffix: str) -> bool:
    """Whether a script or statement compares a writer with who may write; comments left out."""
    return COMPARISONS[suffix].search(COMMENT.sub("", text)) is not None


def test_every_marker_names_a_rule_that_is_there() -> None:
    """Whoever follows it finds the rule; a rule that was renamed is renamed there."""
    found = markers(COPIES_LIE_IN)
    assert len(found) > 140
    names = {name for name, _ in found}
    assert [
        each for each in sorted(names) if not callable(pkgutil.resolve_name(f"helix_temporal.{each}"))
    ] == []


def test_every_marker_has_the_one_form() -> None:
    """A marker that is written in another way is found by no search."""
    wrong = [
        f"{file.name}: {line}"
        for file in COPIES_LIE_IN
        for line in file.read_text("utf-8").splitlines()
        if LIKE_A_MARKER.search(line) and not MARKER.match(line)
    ]
    assert wrong == []


def test_every_rule_has_the_copies_that_it_declares_and_no_others() -> None:
    """Whoever changes a rule reads there which backends to change with it."""
    found: dict[str, set[str]] = {}
    for name, file in markers(COPIES_LIE_IN):
        found.setdefault(name, set()).add(file.relative_to(STORES).parts[0])
    assert found == declarations()


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: "/".join(file.parts[-3::2]))
def test_what_compares_epochs_or_revisions_names_its_rule(file: Path) -> None:
    """A new script that decides who may write is found by whoever changes that rule."""
    unmarked = [
        each for each in statements_of(file) if compares(each, file.suffix) and not MARKER.search(each)
    ]
    assert bool(unmarked) == (file.name in OWN), unmarked


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("if h[EPOCH] ~= epoch then return nil end", ".lua"),
        ("if tonumber(h[EPOCH]) > tonumber(epoch) then", ".lua"),
        ("if (h[2] or '0') ~= revision then return 'N' end", ".lua"),
        ("if not held or row[TOKEN] ~= ARGV[2] then return nil end", ".lua"),
        ("WHERE t.thread_id = $1 AND t.epoch = $2", ".sql"),
        ("WHERE s.session_id = $1 AND s.rev = $2", ".sql"),
        ("SET max_epoch = greatest(s.max_epoch, $3::bigint)", ".sql"),
        ("WHERE NOT t.closed", ".sql"),
    ],
)
def test_such_a_comparison_is_found_out(text: str, suffix: str) -> None:
    """The check above knows what it looks for."""
    assert compares(text, suffix)
    assert not compares(f"-- {text}", suffix)
