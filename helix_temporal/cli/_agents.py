"""Agents by the names of modules: what ``helix-temporal worker`` serves."""

import importlib
from collections.abc import Sequence

from helix_temporal.agents import Agent
from helix_temporal.errors import InvalidConfigError


def load_agents(names: Sequence[str]) -> list[Agent]:
    """The agents that ``module`` or ``module:attribute`` name, each once.

    An attribute is an `Agent` or a list of them.  Without one all agents are taken that the module has under
    a name of its own or in lists.

    Raises:
        InvalidConfigError: There is no such module or attribute, or no agent there.
    """
    found: dict[int, Agent] = {}
    for name in names:
        for agent in _import_agents(name):
            found[id(agent)] = agent
    return list(found.values())


def _import_agents(name: str) -> list[Agent]:
    module_name, colon, attribute = name.partition(":")
    if not module_name or (colon and not attribute):
        raise InvalidConfigError(f"agents: {name!r} is not MODULE or MODULE:NAME")
    try:
        module = importlib.import_module(module_name)
        values = [getattr(module, attribute)] if attribute else list(vars(module).values())
    except (ModuleNotFoundError, AttributeError) as error:
        raise InvalidConfigError(f"agents: {name!r}: {error}") from error
    agents = [agent for value in values for agent in _agents_in(value)]
    if agents:
        return agents
    if not attribute:
        raise InvalidConfigError(f"agents: {name!r} has none")
    kind = type(values[0]).__name__
    raise InvalidConfigError(f"agents: {name!r} is {kind}; an Agent or a list of agents expected")


def _agents_in(value: object) -> list[Agent]:
    if isinstance(value, Agent):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(each, Agent) for each in value):
        return list(value)
    return []
