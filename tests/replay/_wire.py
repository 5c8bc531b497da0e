"""What is on the wire, collected from the code: names and shapes that histories and clients depend on."""

import functools
import inspect
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import BaseModel
from temporalio import activity, workflow

from helix_temporal import errors
from helix_temporal.activities import LockActivities, SessionActivities, ThreadActivities, UsageActivities
from helix_temporal.activities.maintenance import CleanupActivities, MaintenanceActivities, WakingActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.rewinds import TakeBacks
from helix_temporal.activities.stores import CheckpointActivities, SessionStoreActivities
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.agents import Agent, Hooks, ModelResponse, tool
from helix_temporal.models.sessions import SessionInput
from helix_temporal.session import record
from helix_temporal.workflows import WORKFLOWS, handlers, short_calls
from helix_temporal.workflows.call_answers import Submissions
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.execution import Execution
from helix_temporal.workflows.stops import Stops

HERE: Final = Path(__file__).parent
WIRE_FILE: Final = HERE / "wire.json"
MODELS: Final = (
    "agents",
    "checkpoints",
    "handles",
    "maintenance",
    "messages",
    "sessions",
    "states",
    "steps",
    "store_calls",
    "stored_messages",
    "threads",
    "usage",
    "waiting",
)


def names() -> dict[str, list[str]]:
    """Everything that has a name on the wire."""
    return {
        "activities": sorted(_activities()),
        "agent_activities": _agent_activities(),
        "errors": sorted(name for name, each in vars(errors).items() if _is_error(each)),
        "queries": _handlers("set_query_handler"),
        "signals": _handlers("set_signal_handler"),
        "updates": _handlers("set_update_handler"),
        "workflows": sorted(workflow._Definition.must_from_class(each).name or "" for each in WORKFLOWS),
    }


@functools.cache
def schemas() -> dict[str, Any]:
    """The JSON schema of each model that travels, without what is meant for people."""
    modules = [*(import_module(f"helix_temporal.models.{name}") for name in MODELS), record, short_calls]
    found = {name: model.model_json_schema() for module in modules for name, model in _models(module)}
    return {name: _bare(schema) for name, schema in found.items()}


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _bare(each)
        for name, each in schema.items()
        if not (name in {"description", "title"} and isinstance(each, str))
    }


def _activities() -> list[str]:
    holders = (
        SessionActivities,
        SessionStoreActivities,
        CheckpointActivities,
        ChildActivities,
        CleanupActivities,
        ThreadActivities,
        MaintenanceActivities,
        WakingActivities,
        LockActivities,
        UsageActivities,
        SessionReads,
        TakeBacks,
    )
    methods = [method for holder in holders for _, method in inspect.getmembers(holder, inspect.isfunction)]
    found = [activity._Definition.from_callable(method) for method in methods]
    return [each.name for each in found if each is not None and each.name is not None]


def _agent_activities() -> list[str]:
    class Silent:
        async def generate(self, request: object) -> ModelResponse:
            return ModelResponse()

    @tool
    def look() -> None:
        """Look."""

    hooks = Hooks(**dict.fromkeys(Hooks().__dataclass_fields__, look))
    facts = Agent(name="AGENT", model=Silent(), tools=[look], hooks=hooks).build_facts()
    return sorted([*(each.activity for each in facts.tools), *facts.hooks.model_dump().values()])


def _handlers(kind: str) -> list[str]:
    """Names that a session registers, by running the registration."""
    found: list[str] = []
    kinds = ("set_query_handler", "set_signal_handler", "set_update_handler")
    saved = {name: getattr(workflow, name) for name in kinds}
    try:
        for name in saved:
            setattr(workflow, name, lambda each, *_, name=name, **__: found.append(f"{name}/{each}"))
        given = SessionInput(session_id="s", agent="a")
        live, calls = Execution.of(given, datetime.now(UTC), 0), TemporalCalls()
        stops = Stops(given, live, calls)
        stops.register()
        handlers.Handlers(given, live, calls, stops.supersede_below).register()
        Submissions(live, given, datetime.now(UTC), calls.children).register()
    finally:
        for name, function in saved.items():
            setattr(workflow, name, function)
    return sorted(each.split("/", 1)[1] for each in found if each.startswith(f"{kind}/"))


def _models(module: ModuleType) -> list[tuple[str, type[BaseModel]]]:
    return [
        (name, each)
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, BaseModel) and each.__module__ == module.__name__
    ]


def _is_error(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, errors.HelixError)
