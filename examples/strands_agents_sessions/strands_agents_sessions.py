"""An agent of Strands that goes on in another process, with a model that needs no key.

    python examples/strands_agents_sessions/strands_agents_sessions.py

Each question is asked by a process of its own; what it knows of the one before is in the store.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import SnapshotSessionManager

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.background_loop import shared_loop
from helix_temporal.frameworks.strands import HelixStorage

QUESTIONS = ("Where is NL-20417?", "And when does it arrive?")


@tool
def find_order(number: str) -> str:
    """Say where an order is."""
    return f"{number} is in Utrecht"


class ScriptedModel(Model):
    """Looks the order up once, then answers with what it has been given."""

    def update_config(self, **model_config: Any) -> None:
        """It has none."""

    def get_config(self) -> Any:
        """It has none."""
        return {}

    def structured_output(self, *args: Any, **more: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        """A call of the tool, or a text."""
        del args, more
        parts = [part for message in messages for part in message["content"]]
        results = [part["toolResult"]["content"][0]["text"] for part in parts if "toolResult" in part]
        yield {"messageStart": {"role": "assistant"}}
        if results:
            text = f"{results[-1]}; I was given {len(messages)} messages."
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        else:
            call = {"toolUseId": "call-1", "name": "find_order"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"number": "NL-20417"}'}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}


def ask(question: str) -> None:
    """One process: open the store, run the agent, print its answer."""
    backends = Backends(Settings.from_env(os.environ))
    storage = HelixStorage("user-42", backends.records, exclusive=True)
    manager = SnapshotSessionManager("user-42", storage=storage)
    agent = Agent(model=ScriptedModel(), tools=[find_order], session_manager=manager, callback_handler=None)
    sys.stdout.write(f"{question}\n  {str(agent(question)).strip()}\n")
    shared_loop().run(backends.close())


def main() -> None:
    """Ask each question in a process of its own, over one directory."""
    with tempfile.TemporaryDirectory() as directory:
        for question in QUESTIONS:
            environment = {"HELIX_DATA_DIRECTORY": directory, **os.environ}
            subprocess.run([sys.executable, __file__, question], env=environment, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ask(sys.argv[1])
    else:
        main()
