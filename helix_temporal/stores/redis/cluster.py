"""A client of a Redis Cluster that follows primaries which come and go."""

import asyncio
import random
from typing import Any, Final

from redis import exceptions as driver
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

_NODE_SECONDS: Final = 1.0
"""For one node that is asked for the layout; then the next one is asked, within the operation's deadline."""

_LOOK_EVERY: Final = 1.0


class Cluster(RedisCluster):
    """A client that asks for the cluster's layout again whenever it may have changed.

    The driver does so only after an error that it sees itself, and waits for ever for a node that hangs.  A
    call that is cancelled at its deadline tells it nothing, nor does a command to a node that is named.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seeds: list[ClusterNode] = [*self.nodes_manager.startup_nodes.values()]
        self._doubtful, self._next_look = True, 0.0
        self._looking = asyncio.Lock()

    def doubt_layout(self, *, at_once: bool = False) -> None:
        """Have the next call read the layout.

        Args:
            at_once: Also if it was read within the last second.
        """
        self._doubtful = True
        if at_once:
            self._next_look = 0.0

    async def follow_layout(self) -> None:
        """Connect at first; later read the layout where it is in doubt, at most once a second."""
        if self._is_due():
            async with self._looking:
                if self._is_due():
                    await self._read_layout()
                    self._doubtful = False
                    self._next_look = asyncio.get_running_loop().time() + _LOOK_EVERY
        # Before it knows the slots the driver sends commands to any node, and closes all connections, also
        # those in use, after five that were moved.
        await self.initialize()

    async def aclose(self) -> None:
        """Close all connections, also those that the driver forgot after an error."""
        await super().aclose()
        for node in [*self.get_nodes(), *self._seeds]:
            await node.disconnect()

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """A node, also one that joined since: while slots move to it, calls are sent there by its name."""
        known: ClusterNode | None = super().get_node(host, port, node_name)
        if known is None and node_name:
            host, _, number = node_name.rpartition(":")
            known = self.nodes_manager.nodes_cache[node_name] = ClusterNode(
                host, int(number), **self.connection_kwargs
            )
        return known

    def _is_due(self) -> bool:
        return self._doubtful and asyncio.get_running_loop().time() >= self._next_look

    async def _read_layout(self) -> None:
        node, primaries = await self._ask_any_node()
        # The driver asks these one after the other and waits for each as long as it takes.
        self.nodes_manager.startup_nodes = {node.name: node}
        # It opens connections anew when it reads the layout, so it does only if there is another one.
        if self.get_default_node() is not None and primaries != {each.name for each in self.get_primaries()}:
            await self.nodes_manager.initialize()

    async def _ask_any_node(self) -> tuple[ClusterNode, set[str]]:
        """A node that answers, and the names of the primaries; empty for one that is new to this client."""
        nodes = self.get_nodes()
        random.shuffle(nodes)
        last: Exception | None = None
        for node in [*nodes, *self._seeds]:
            try:
                async with asyncio.timeout(_NODE_SECONDS):
                    slots: list[Any] = await node.execute_command("CLUSTER SLOTS")
            except driver.ResponseError:
                return node, set()  # no cluster, or rights are missing: the driver tells
            except (driver.AuthenticationError, driver.AuthorizationError):
                raise  # the other nodes have the same users
            except (driver.RedisError, OSError) as error:
                last = error
            else:
                return node, {self._name_of(each[2], node) for each in slots}
        raise driver.RedisClusterException("Redis Cluster cannot be connected") from last

    def _name_of(self, address: list[Any], asked: ClusterNode) -> str:
        # A node that does not know its own address leaves it out.
        known = self.get_node((address[0] or b"").decode() or asked.host, int(address[1]))
        return known.name if known else ""
