"""Builds the pages as a site in ``build/site``, checks it, and writes ``llms.txt``.  `make docs` runs it.

Links to files outside of ``docs/`` (examples, tests, code) lead nowhere in a site: they become plain text.
The script that lets the search run from the file system is our own, not one of another host.  Then every
other link, every picture, and every name that the reference promises must be there, and nothing may be
loaded from elsewhere.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
SITE: Final = ROOT / "build" / "site"
_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
_OWN_SHIM: Final = Path(__file__).with_name("file_worker.js")
_ANCHOR: Final = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
_REFERENCE: Final = re.compile(r'<(?:a|img|script|link|iframe)\b[^>]*?\b(?:href|src)="([^"]*)"')
_LOADED: Final = re.compile(r'<(?:img|script|iframe|link)\b[^>]*?\b(?:href|src)="(https?:)?//')
_ID: Final = re.compile(r'\b(?:id|name)="([^"]+)"')
_CODE: Final = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
_UNMADE: Final = re.compile(r"<p>(?:(?:(?!</p>).)*?\n)?(?:\* |\d+\. |\||```|:::)", re.DOTALL)
_DIRECTIVE: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"[a-z]+:|//")


def nav_entries(nav: list[Any]) -> Iterator[tuple[str, str]]:
    """Title and page of each entry, in order."""
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield title, below
            else:
                yield from nav_entries(below)


def unlink_outside(page: Path) -> None:
    """Make plain text of links to what is in the repository and not in the site."""

    def replaced(found: "re.Match[str]") -> str:
        target, text = found[1], found[2]
        if _ELSEWHERE.match(target) or not target.startswith(".."):
            return found[0]
        inside = (page.parent / target.partition("#")[0]).resolve().is_relative_to(SITE)
        return found[0] if inside else text

    page.write_text(_ANCHOR.sub(replaced, page.read_text()))


def use_own_shim(page: Path) -> None:
    """Load the script for searches without a server from the site."""
    up = "../" * (len(page.relative_to(SITE).parts) - 1)
    page.write_text(page.read_text().replace(_SHIM, f"{up}assets/javascripts/{_OWN_SHIM.name}"))


def problems(pages: list[Path]) -> list[str]:
    """Dead links, whatever is loaded from another host, and Markdown that is still there."""
    texts: Mapping[Path, str] = {page: page.read_text() for page in pages}
    ids = {page: set(_ID.findall(text)) for page, text in texts.items()}
    found = []
    for page, text in texts.items():
        where = page.relative_to(SITE)
        found += [f"{where}: loads from another host" for _ in _LOADED.findall(text)]
        # It needs an empty line before it, and within a list four spaces.
        unmade = _UNMADE.findall(_CODE.sub("", text))
        found += [f"{where}: no list, table or block came of: {each[-80:]!r}" for each in unmade]
        for link in _REFERENCE.findall(text):
            if _ELSEWHERE.match(link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            lost = anchor and target in ids and anchor not in ids[target]
            if not target.exists() or lost:
                found.append(f"{where}: {link}")
    return found


def missing_names(pages: list[Path]) -> list[str]:
    """Names of the reference that did not come to be on their page."""
    ids = {name for page in pages for name in _ID.findall(page.read_text())}
    promised = [name for page in DOCS.glob("reference/*.md") for name in _DIRECTIVE.findall(page.read_text())]
    return [f"reference: {name} is not documented" for name in promised if name not in ids]


def llms_text(config: Mapping[str, Any]) -> str:
    """The pages of the site, each with its first sentence, as one list."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for title, page in nav_entries(config["nav"]):
        lines.append(
            f"- [{title}]({page.removesuffix('.md')}.html): {first_sentence(DOCS / page)}".rstrip(": ")
        )
    return "\n".join(lines) + "\n"


def first_sentence(page: Path) -> str:
    """The beginning of a page's first paragraph."""
    paragraphs = re.split(r"\n\s*\n", page.read_text())
    plain = [each for each in paragraphs if re.match(r"[A-Z\[*`]", each)]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(plain[0].split())) if plain else ""
    return re.split(r"(?<=[.:]) ", text)[0]


def main() -> int:
    """Build, mend, check; the exit code says whether all is well."""
    shutil.rmtree(SITE, ignore_errors=True)
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    if subprocess.run(build, cwd=ROOT, check=False).returncode:  # noqa: S603 (our own command)
        return 1
    (SITE / "404.html").unlink()  # a server's, with links from its root
    shutil.copy(_OWN_SHIM, SITE / "assets" / "javascripts")
    pages = sorted(SITE.rglob("*.html"))
    for page in pages:
        unlink_outside(page)
        use_own_shim(page)
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    (SITE / "llms.txt").write_text(llms_text(config))
    found = [*problems(pages), *missing_names(pages)]
    sys.stderr.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"{len(pages)} pages: {SITE / 'index.html'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
