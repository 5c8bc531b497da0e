"""The table, as text and between two marks of docs/frameworks.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- make faults WRITE=1 writes from here -->"
END: Final = "<!-- to here -->"
TITLES: Final = {
    "openai_agents": "OpenAI Agents SDK",
    "claude_agent_sdk": "Claude Agent SDK",
    "agent_framework": "agent-framework",
    "langgraph": "LangGraph",
    "google_adk": "Google ADK",
    "pydantic_ai": "pydantic-ai",
}
_PLACES: Final = {"postgres": "PostgreSQL", "redis": "Redis", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a framework: its packages' versions and rows, or why there are none."""

    framework: str
    versions: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    missing: str | None = None


def render_table(results: Sequence[Result]) -> str:
    """A Markdown table with a row for each store; ours are bold."""
    columns = list(dict.fromkeys(name for each in results for row in each.rows for name in row["cells"]))
    lines = [_line(["framework", "store", *columns]), _line(["---"] * (len(columns) + 2))]
    for result in results:
        title = TITLES.get(result.framework, result.framework)
        lines += [
            _line([title, _store(row), *(row["cells"].get(each, "–") for each in columns)])
            for row in result.rows
        ]
        if result.missing is not None:
            lines.append(_line([title, result.missing, *("–" for _ in columns)]))
    versions = ", ".join(dict.fromkeys(each for result in results for each in result.versions))
    return "\n".join([*lines, "", f"Of {versions}."])


def write_table(page: Path, table: str) -> None:
    """Replace what stands between the marks.

    Raises:
        ValueError: The page does not have each mark once, in order.
    """
    page.write_text(replace_table(page.read_text("utf-8"), table), "utf-8")


def replace_table(text: str, table: str) -> str:
    """The page's text with this table between the marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page needs the marks {BEGIN} and {END}, once each")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def find_table(text: str) -> str:
    """What stands between the marks."""
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def _store(row: Mapping[str, Any]) -> str:
    place = _PLACES[row["place"]]
    name = row["store"] if place in row["store"] else f"{row['store']}, {place}"
    return f"**{name}**" if row["ours"] else name


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
