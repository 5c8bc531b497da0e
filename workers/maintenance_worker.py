"""Archives what sessions left behind, until SIGTERM or Ctrl-C: `helix-temporal maintenance`, in a clone."""

import sys

from helix_temporal.cli.commands import app

if __name__ == "__main__":
    app(["maintenance", *sys.argv[1:]])
