"""What our plugins for frameworks have alike: stores that open at first use, and a sandbox that knows us."""

import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.activities._runtime import heartbeat_with_progress
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.settings import Settings

if TYPE_CHECKING:
    from helix_temporal.backends import Backends

P = ParamSpec("P")
T = TypeVar("T")

HEARTBEAT_EVERY: Final = 1.0
"""Seconds, in activities that ask stores."""
_PASSED_THROUGH: Final = ("helix_temporal", "redis")
"""Redis' driver imports more of itself when its garbage is collected, which may be in a workflow."""


class StorePlugin(SimplePlugin):
    """A guest beside a framework's own plugin: it adds activities that use our stores.

    A process that has a client alone opens no store, nor does a replayer.  Several workers may have one
    instance, as workers of one client do: what it opened is closed when the last of them ends.

    Args:
        name: Of the plugin.
        settings: Where the stores are.
        backends: Stores from elsewhere; whoever made them closes them.
        failures: Errors, beside ours, that end a workflow instead of being tried again for ever.
        adds: What else `SimplePlugin` takes.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        backends: "Backends | None" = None,
        *,
        failures: Sequence[type[Exception]] = (),
        **adds: Any,
    ) -> None:
        self.settings = settings
        self._given = backends
        self._made: Backends | None = None
        self._workers = 0
        super().__init__(
            name,
            workflow_runner=_pass_through,
            workflow_failure_exception_types=[HelixError, *failures],
            run_context=self._run,
            **adds,
        )

    @property
    def backends(self) -> "Backends":
        """The stores of this process, opened by the first call that needs one."""
        if self._given is not None:
            return self._given
        if self._made is None:
            # Not at the top: a client-only process, and the sandbox, do without drivers.
            from helix_temporal.backends import Backends  # noqa: PLC0415

            self._made = Backends(self.settings)
        return self._made

    def forget_stores(self) -> None:
        """Drop what was made of the stores: they are closed when the last worker has ended."""

    @contextmanager
    def serve_worker(self) -> Iterator[None]:
        """What a plugin changes of the process while a worker runs, if anything."""
        yield

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Refuse a second one, whose activities have the same names; else as `SimplePlugin`."""
        kind = type(self)
        client = config.get("client")
        given = [*(config.get("plugins") or ()), *(client.config().get("plugins", ()) if client else ())]
        if sum(isinstance(each, kind) for each in given) > 1:
            raise InvalidConfigError(
                f"the worker has two of {kind.__name__}; give one, to Client.connect or to the worker"
            )
        return super().configure_worker(config)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._workers += 1
        try:
            with self.serve_worker():
                yield
        finally:
            self._workers -= 1
            if self._workers == 0:
                await self._close()

    async def _close(self) -> None:
        self.forget_stores()
        made, self._made = self._made, None
        if made is not None:
            await made.close()


def with_heartbeats(every: float) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Let an activity heartbeat each so many seconds, so that Temporal notices a worker that dies in it.

    Its first heartbeat comes after that time: one that takes less has none.
    """

    def decorate(do: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(do)
        async def beating(*args: P.args, **kwargs: P.kwargs) -> T:
            async with heartbeat_with_progress(every):
                return await do(*args, **kwargs)

        return beating

    return decorate


def read_reference_keys(settings: Settings) -> tuple[str, ...]:
    """The secret that signs references to conversations, and the other one that is taken, if there is one.

    Raises:
        InvalidConfigError: There is none.
    """
    if settings.reference_key is None:
        raise InvalidConfigError(
            "reference_key is not set, and signs references to conversations; set HELIX_REFERENCE_KEY to "
            "the same secret of 16 characters or more for all workers"
        )
    keys = (settings.reference_key, settings.other_reference_key)
    return tuple(key.get_secret_value() for key in keys if key)


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """The worker's runner, whose sandbox does not load our modules anew; any other runner as it is."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner or SandboxedWorkflowRunner()
    restrictions = runner.restrictions.with_passthrough_modules(*_PASSED_THROUGH)
    return dataclasses.replace(runner, restrictions=restrictions)
