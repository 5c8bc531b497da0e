"""``python -m tests.outside.soak --minutes 30``: one worker under constant load, from the built wheel."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.outside._environment import make_outside


def main() -> int:
    """Print the figures; also written to build/soak.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--sessions", type=int, default=100)
    arguments = parser.parse_args()
    output = Path("build/soak.json").resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="helix-outside-") as directory:
        outside = make_outside(Path(directory), ["soak"])
        load = ("--minutes", str(arguments.minutes), "--sessions", str(arguments.sessions))
        done = outside.run("soak", *load, "--output", str(output), seconds=60 * arguments.minutes + 600)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr[-4000:] if done.returncode else "")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
