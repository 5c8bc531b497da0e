"""One seed, from an empty world to the verdict."""

import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from tests.simulation._patches import simulated
from tests.simulation._story import Plan, Story
from tests.simulation._worker import Shop
from tests.simulation._world import Rates, Trace, Violation, World

Breaking = Callable[[Shop], AbstractContextManager[None]]


@dataclass(frozen=True)
class Verdict:
    """What came of a seed; ``why`` is empty if all promises held."""

    seed: int
    why: str
    seen: Counter[str]


def simulate(
    seed: int,
    *,
    exit_mode: bool | None = None,
    rates: Rates | None = None,
    trace: Trace | None = None,
    strict: bool = True,
    broken: Breaking | None = None,
) -> Verdict:
    """Run one seed.

    Args:
        seed: Decides everything.
        exit_mode: ``flush="exit"`` over a hot tier that loses nothing; by default one seed in five.
        rates: How often what happens.
        trace: Is told each event.
        strict: Judge each write, too, rather than only what users could see.
        broken: Removes a guard of the code under test while it runs.
    """
    if exit_mode is None:
        exit_mode = seed % 5 == 4
    world = World(seed, rates or Rates(), trace=trace)
    with ExitStack() as stack:
        stack.enter_context(simulated(world.random, world.loop.time, keeps_answers=world.keeps_answers))
        shop = Shop.build(world, flush_each_step=not exit_mode, strict=strict)
        if broken is not None:
            stack.enter_context(broken(shop))
        plan = Plan(turns=4 + int(world.draw() * 7), wipes=not exit_mode)
        why = _why(world, Story(world, shop, plan))
    if not why and not exit_mode and world.seen["TURN RUN AGAIN"]:
        why = "a turn was run again"
    return Verdict(seed, why, world.seen)


def run_seed(
    world: World,
    story: Callable[[World], Coroutine[Any, Any, None]],
    broken: AbstractContextManager[Any] | None,
) -> Verdict:
    """Run a story that ends at the first `Violation`; ``broken`` as in `simulate`, entered as it is."""
    with ExitStack() as stack:
        stack.enter_context(simulated(world.random, world.loop.time, keeps_answers=world.keeps_answers))
        if broken is not None:
            stack.enter_context(broken)
        try:
            world.loop.run(story(world))
        except Violation as violation:
            return Verdict(world.seed, str(violation), world.seen)
    return Verdict(world.seed, "", world.seen)


def _why(world: World, story: Story) -> str:
    try:
        world.loop.run(story.run())
    except Violation:
        pass
    except Exception as error:  # noqa: BLE001 (any exception that reaches the session is a verdict)
        world.say(traceback.format_exc())
        return f"{type(error).__name__}: {error}"
    if world.violation is None:
        return ""
    if world.excused:
        world.note(f"no verdict: {world.excused}")
        return ""
    return str(world.violation)
