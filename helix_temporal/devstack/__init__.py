"""Real local servers without Docker: Temporal with its UI, PostgreSQL, Valkey and S3 (SeaweedFS).

`start_stack` runs several for as long as a block lasts; `start_valkey` and `start_valkey_cluster` run what a
test wipes, kills and restarts.  Everything here is synchronous: in async code enter it before the loop runs,
or in a thread.
"""

from helix_temporal.devstack.errors import DevStackError, PortTakenError, ServerMissingError, ServerStartError
from helix_temporal.devstack.postgres import PostgresEndpoint
from helix_temporal.devstack.programs import Ports
from helix_temporal.devstack.seaweedfs import S3Endpoint
from helix_temporal.devstack.servers import LocalServer
from helix_temporal.devstack.stack import REDIS_CLUSTER, SERVICES, Stack, start_stack
from helix_temporal.devstack.temporal import TemporalEndpoint
from helix_temporal.devstack.valkey import RedisEndpoint, Valkey, start_valkey, start_valkey_cluster

__all__ = [
    "REDIS_CLUSTER",
    "SERVICES",
    "DevStackError",
    "LocalServer",
    "PortTakenError",
    "Ports",
    "PostgresEndpoint",
    "RedisEndpoint",
    "S3Endpoint",
    "ServerMissingError",
    "ServerStartError",
    "Stack",
    "TemporalEndpoint",
    "Valkey",
    "start_stack",
    "start_valkey",
    "start_valkey_cluster",
]
