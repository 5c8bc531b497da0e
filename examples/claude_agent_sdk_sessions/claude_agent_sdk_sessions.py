"""A conversation of the Claude Agent SDK that goes on elsewhere: another process, another home directory.

    python examples/claude_agent_sdk_sessions/claude_agent_sdk_sessions.py

The SDK's program keeps transcripts in its home; here each question has an empty one, as on another machine.
What it knows of the one before comes from the store.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, query

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore

QUESTIONS = ("Where is NL-20417?", "And when does it arrive?")
PROGRAM = Path(__file__).with_name("scripted_claude.py")


async def ask(question: str) -> None:
    """One process: open the store, ask, print the answer."""
    backends = Backends(Settings.from_env(os.environ))
    store = HelixSessionStore(backends.sessions)
    options = ClaudeAgentOptions(session_store=store, continue_conversation=True, cli_path=PROGRAM)
    sys.stdout.write(f"{question}\n")
    async for message in query(prompt=question, options=options):
        if isinstance(message, AssistantMessage):
            texts = [part.text for part in message.content if isinstance(part, TextBlock)]
            sys.stdout.write(f"  {' '.join(texts)}\n")
    await backends.close()


def main() -> None:
    """Ask each question in a process of its own, over one store."""
    with tempfile.TemporaryDirectory() as directory:
        for number, question in enumerate(QUESTIONS):
            home = Path(directory) / f"home-{number}"
            home.mkdir()
            environment = {
                "HELIX_DATA_DIRECTORY": f"{directory}/data",
                **os.environ,
                "HOME": str(home),
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            }
            subprocess.run([sys.executable, __file__, question], env=environment, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(ask(sys.argv[1]))
    else:
        main()
