"""`helix-temporal worker` in a clone: without HELIX_AGENTS it serves the quickstart's agent."""

import os
import sys
from pathlib import Path

from helix_temporal.cli.commands import app

QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart"

if __name__ == "__main__":
    sys.path.insert(0, str(QUICKSTART))
    os.environ["HELIX_AGENTS"] = os.environ.get("HELIX_AGENTS") or "agent:support"
    app(["worker", *sys.argv[1:]])
