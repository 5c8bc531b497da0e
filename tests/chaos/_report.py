"""Progress on the way, figures at the end."""

import sys
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos._oracle import Findings


@dataclass(slots=True)
class Report:
    """What one campaign found.

    Attributes:
        name: The campaign's.
        seed: Runs it again with the same choices.
        figures: What was counted, beside the findings.
    """

    name: str
    seed: int
    findings: Findings = field(default_factory=Findings)
    figures: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The report as it is written."""
        counts = self.findings.counts()
        return {
            "name": self.name, "seed": self.seed, **self.figures, **counts,
            "findings": self.findings.all[:50], "ok": not self.findings.all,
        }  # fmt: skip

    def line(self) -> str:
        """One line for people."""
        shown = {**self.figures, **self.findings.counts()}
        figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
        return f"{self.name}: {figures} (seed {self.seed})"

    def check(self) -> None:
        """Fail with what was found."""
        assert not self.findings.all, f"{self.line()}\n" + "\n".join(self.findings.all[:20])


class Progress:
    """One line that is written over, at most twice a second; nothing when it is not wanted."""

    def __init__(self, *, shown: bool) -> None:
        self._shown, self._last = shown, 0.0

    def __call__(self, text: str, *, final: bool = False) -> None:
        if not self._shown or (not final and time.monotonic() < self._last + 0.5):
            return
        self._last = time.monotonic()
        end = "\n" if final or not sys.stderr.isatty() else "\r"
        sys.stderr.write(f"{text:<100}{end}")
        sys.stderr.flush()
