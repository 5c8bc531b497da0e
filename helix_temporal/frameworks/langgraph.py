"""LangGraph over stores of ours: checkpoints in `HelixSaver`, memories in `HelixStore`."""

from helix_temporal.frameworks.langgraph_saver import HelixSaver
from helix_temporal.frameworks.langgraph_store import HelixStore

__all__ = ["HelixSaver", "HelixStore"]
