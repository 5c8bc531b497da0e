"""Deployments: several of them may share one Temporal namespace, and none serves another's sessions.

A deployment's identity is its name and one mark for each store that it names, such as
``helix@redis:1f0c2d3e+archive:77aa12bc``.  A mark is a digest of where the store is: hosts, ports, databases,
prefixes.  No user, password or other option of an address is in it.  Workflows carry the identity from
their start on, clients send it with each request, and a worker compares it with its own.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from helix_temporal.errors import ForeignDeploymentError

DEFAULT_NAME: Final = "helix"
KEY: Final = "helix"
"""Of headers and memos that have an identity."""
QUEUE: Final = "queue"
"""Stands for the stores of a client that names none: then its task queue is all that it says."""
SETTINGS: Final = {
    "name": "HELIX_NAME",
    QUEUE: "HELIX_TASK_QUEUE, or the stores, which this client does not name",
    "redis": "HELIX_REDIS_URL and HELIX_REDIS_PREFIX",
    "postgres": "HELIX_POSTGRES_DSN and HELIX_TABLE_PREFIX",
    "sqlite": "HELIX_DATA_DIRECTORY",
    "archive": "HELIX_S3_ENDPOINT, HELIX_S3_BUCKET and HELIX_S3_PREFIX, or HELIX_COLD_DIRECTORY",
}
"""The settings to look at, by what differs."""

NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,18}[a-z0-9])?")
_TEXT: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9-]{0,19})(?:@(?P<marks>[a-z]+:[0-9a-f]{8}(?:\+[a-z]+:[0-9a-f]{8})*))?"
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Whose a session is.

    Attributes:
        name: The deployment's.
        marks: Pairs of a kind of store and the digest of where it is.
    """

    name: str = DEFAULT_NAME
    marks: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Inverse of ``str``.

        Raises:
            ValueError: It is no identity.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:80]!r} is no identity of a deployment, such as helix@redis:1f0c2d3e")
        pairs = (found["marks"] or "").split("+") if found["marks"] else []
        return cls(found["name"], tuple((each[:-9], each[-8:]) for each in pairs))

    def __str__(self) -> str:
        marks = "+".join(f"{kind}:{digest}" for kind, digest in self.marks)
        return f"{self.name}@{marks}" if marks else self.name

    @property
    def is_plain(self) -> bool:
        """It says nothing: the default name and no stores."""
        return self == Deployment()

    def difference(self, asking: "Deployment", *, names_all: bool = True) -> str | None:
        """What of ``asking`` is not of this deployment: a key of `SETTINGS`; None if it is the same.

        Who asks may name fewer stores than there are, as a web application that reads streams alone.

        Args:
            asking: Who asks, or whose session it is.
            names_all: This names all its stores; otherwise only those are compared that both name.
        """
        if asking.name != self.name:
            return "name"
        mine = dict(self.marks)
        for kind, digest in asking.marks:
            if mine.get(kind, digest if not names_all else None) != digest:
                return kind
        return None


def digest_location(*parts: object) -> str:
    """The digest of where a store is."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="surrogateescape")).hexdigest()[:8]


def memo_of(deployment: Deployment) -> dict[str, str] | None:
    """What a workflow is started with; None where there is nothing to say."""
    return None if deployment.is_plain else {KEY: str(deployment)}


def deployment_name(identity: str | None) -> str:
    """The name in an identity; the default where there is none."""
    return identity.partition("@")[0] if identity else DEFAULT_NAME


class DeploymentCheck:
    """Compares who asks with whose worker, or client, this is.

    Args:
        own: Whose it is.
        also: Identities that are the same deployment.
        names_all: ``own`` names all its stores; not where they were made elsewhere.
        process: What it is that looks, as the error names it.
    """

    def __init__(
        self,
        own: Deployment,
        also: Sequence[str] = (),
        *,
        names_all: bool = True,
        process: str = "a process",
    ) -> None:
        self.own, self._names_all, self._process = own, names_all, process
        self._also = tuple(Deployment.parse(each) for each in also)

    def refuse(self, asking: str, queue: str | None = None) -> None:
        """Let pass who is of this deployment.

        Args:
            asking: The identity of who asks, or whose session it is.
            queue: Of the session that is asked; None where that does not matter.

        Raises:
            ForeignDeploymentError: It is another one.
        """
        try:
            other = Deployment.parse(asking)
        except ValueError:
            return  # a later version's, which has its own checks
        differs = self._find_difference(other, queue)
        if differs is None:
            return
        raise ForeignDeploymentError(
            f"what belongs to deployment {asking!r} came to {self._process}, whose "
            f"deployment is {self.own!s}: they differ in {differs}; compare "
            f"{SETTINGS.get(differs, differs)} of both processes. Deployments in one namespace need names of "
            f"their own (HELIX_NAME); the same stores under another address, or moved ones, are told by "
            f"HELIX_ALSO_KNOWN_AS={asking}",
            asking=asking,
            own=str(self.own),
            differs=differs,
        )

    def _find_difference(self, other: Deployment, queue: str | None) -> str | None:
        marks = dict(other.marks)
        said = marks.pop(QUEUE, None)
        other = Deployment(other.name, tuple(marks.items()))
        differs = self.own.difference(other, names_all=self._names_all)
        if differs is not None and any(each.difference(other) is None for each in self._also):
            differs = None
        if differs is None and said is not None and queue is not None and said != digest_location(queue):
            return QUEUE
        return differs
