"""A deployment's identity: what counts for it, and what may change without making it another one."""

from pathlib import Path
from typing import Any

import pytest

from helix_temporal._deployments import asking_for
from helix_temporal.errors import ForeignDeploymentError, InvalidConfigError
from helix_temporal.models.deployments import Deployment, DeploymentCheck, digest_location
from helix_temporal.settings import Settings

WHOLE: dict[str, Any] = {
    "redis_url": "redis://user:old@cache.example:6379/0",
    "postgres_dsn": "postgresql://user:old@db.example/app",
    "s3_bucket": "threads",
    "s3_endpoint": "https://s3.example",
    "allow_plaintext": True,
}


def check_of(settings: Settings) -> DeploymentCheck:
    return DeploymentCheck(settings.deployment, settings.also_known_as)


def identity(**changes: Any) -> str:
    return str(Settings(**(WHOLE | changes)).deployment)


@pytest.mark.parametrize(
    "changes",
    [
        {"redis_url": "redis://other:new@cache.example/"},
        {"redis_url": "rediss://CACHE.example:6379/0?ssl_cert_reqs=none"},
        {"postgres_dsn": "postgres://other:new@DB.example:5432/app?sslmode=require"},
        {"s3_endpoint": "https://s3.example:443/", "s3_region": "eu-west-1"},
        {"s3_access_key": "a", "s3_secret_key": "b"},
        {"temporal_address": "elsewhere:7233", "task_queue": "another"},
        {"flush": "exit", "keep_warm": True},
    ],
    ids=["password", "tls", "dsn", "region", "keys", "temporal", "behaviour"],
)
def test_what_says_nothing_of_the_place_does_not_count(changes: dict[str, Any]) -> None:
    """A new password, another way to the same server, another queue: the same deployment."""
    assert identity(**changes) == identity()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"redis_url": "redis://cache2.example:6379/0"}, "redis"),
        ({"redis_url": "redis://cache.example:6380/0"}, "redis"),
        ({"redis_url": "redis://cache.example:6379/1"}, "redis"),
        ({"redis_prefix": "b:"}, "redis"),
        ({"postgres_dsn": "postgresql://db.example/other"}, "postgres"),
        ({"table_prefix": "b_"}, "postgres"),
        ({"s3_bucket": "others"}, "archive"),
        ({"s3_prefix": "b"}, "archive"),
        ({"s3_endpoint": "https://s3.elsewhere"}, "archive"),
        ({"name": "b", "redis_prefix": "helix:", "table_prefix": "__agents_", "s3_prefix": "helix"}, "name"),
    ],
)
def test_what_says_where_the_stores_are_counts(changes: dict[str, Any], kind: str) -> None:
    """Each of them is another place, and is named."""
    other = identity(**changes)
    with pytest.raises(ForeignDeploymentError) as refused:
        check_of(Settings(**WHOLE)).refuse(other)
    assert refused.value.facts == {"asking": other, "own": identity(), "differs": kind}


def test_a_store_that_keeps_nothing_is_no_part_of_it(tmp_path: Path) -> None:
    """A Redis beside a data directory keeps all: a session whose thread is in the directory is another's."""
    both = Settings(data_directory=tmp_path, redis_url="redis://localhost")
    assert [kind for kind, _ in both.deployment.marks] == ["redis"]
    alone = str(Settings(data_directory=tmp_path).deployment)
    with pytest.raises(ForeignDeploymentError, match="HELIX_DATA_DIRECTORY"):
        check_of(both).refuse(alone)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"redis_url": "redis://localhost"}, {"redis_url": "redis://127.0.0.1:6379/0"}),
        ({"redis_url": "redis://[::1]"}, {"redis_url": "redis://127.0.0.7"}),
        (
            {"redis_url": "redis://node-1:6379", "redis_cluster": True},
            {"redis_url": "redis://node-2:6380", "redis_cluster": True},
        ),
        (
            {"redis_url": "redis+sentinel://user:old@one:26379,two:26379/main"},
            {"redis_url": "rediss+sentinel://three/main/0"},
        ),
        ({"redis_url": "unix:///run/redis.sock"}, {"redis_url": "unix://user:secret@/run/redis.sock?db=0"}),
        (
            {"postgres_dsn": "postgresql://primary.example,replica.example/app"},
            {"postgres_dsn": "postgresql://replica.example,primary.example,third.example/app"},
        ),
    ],
    ids=["loopback", "ipv6", "cluster", "sentinel", "socket", "replica"],
)
def test_names_of_one_server_are_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Names of this machine, nodes of a cluster, and a replica beside the primary."""
    assert identity(**one) == identity(**other)


def test_no_secret_and_no_address_is_in_it() -> None:
    """It is in workflow histories, which everybody of the namespace reads."""
    text = identity()
    assert text.startswith("helix@redis:")
    assert all(word not in text for word in ("old", "user", "example", "threads"))
    assert str(Deployment.parse(text)) == text


def test_who_names_fewer_stores_is_served() -> None:
    """A web application knows Redis alone; a worker has it and more."""
    check = check_of(Settings(**WHOLE))
    check.refuse(str(Settings().deployment))
    check.refuse(str(Settings(redis_url=WHOLE["redis_url"], allow_plaintext=True).deployment))


def test_who_names_more_stores_than_the_worker_has_is_refused() -> None:
    """The worker's address of it was forgotten, or misspelt."""
    without: dict[str, Any] = {"s3_bucket": None, "s3_endpoint": None}
    with pytest.raises(ForeignDeploymentError, match="HELIX_S3_BUCKET"):
        check_of(Settings(**(WHOLE | without))).refuse(identity())


def test_stores_that_were_made_elsewhere_are_not_judged() -> None:
    """Settings do not say where they are."""
    DeploymentCheck(Deployment(), names_all=False).refuse(identity())


def test_an_identity_from_before_is_the_same_deployment() -> None:
    """Redis was moved on purpose, and the workers were told."""
    changes: dict[str, Any] = {"redis_url": "redis://new.example", "also_known_as": identity()}
    moved = Settings(**(WHOLE | changes))
    check_of(moved).refuse(identity())
    check_of(moved).refuse(str(moved.deployment))


def test_a_client_without_stores_says_its_queue_if_it_was_given_one() -> None:
    """Else it says nothing: scripts talk to sessions on any queue."""
    assert asking_for(Settings(), None) == Deployment()
    assert asking_for(Settings(), "b") == Deployment(marks=(("queue", digest_location("b")),))
    assert asking_for(Settings(task_queue="b"), None) == asking_for(Settings(), "b")
    assert asking_for(Settings(**WHOLE), "b") == Settings(**WHOLE).deployment


def test_a_session_on_another_queue_is_refused_to_a_client_without_stores() -> None:
    """What a sub-agent's queue is does not matter."""
    check, asking = DeploymentCheck(Deployment()), str(asking_for(Settings(), "b"))
    check.refuse(asking, "b")
    check.refuse(asking, None)
    with pytest.raises(ForeignDeploymentError, match="HELIX_TASK_QUEUE"):
        check.refuse(asking, "a")


def test_everything_follows_from_the_name() -> None:
    """One setting tells two deployments apart."""
    found = Settings.from_env({"HELIX_NAME": "team-a", "HELIX_DATA_DIRECTORY": "/data"})
    assert (found.task_queue, found.redis_prefix) == ("team-a", "team-a:")
    assert (found.s3_prefix, found.table_prefix) == ("team-a", "__team_a_agents_")
    assert found.sqlite_file == Path("/data/deployments/team-a/helix.db")


def test_each_can_be_set_alone() -> None:
    """Also to what it is without a name."""
    found = Settings(name="team-a", redis_prefix="helix:", task_queue="agents")
    assert (found.task_queue, found.redis_prefix, found.s3_prefix) == ("agents", "helix:", "team-a")


def test_without_a_name_all_is_as_it_was() -> None:
    """Stored histories and data of before keep working."""
    found = Settings(data_directory=Path("/data"))
    assert (found.name, found.task_queue, found.redis_prefix) == ("helix", "helix", "helix:")
    assert (found.s3_prefix, found.table_prefix, found.sqlite_file) == (
        "helix",
        "__agents_",
        Path("/data/helix.db"),
    )


@pytest.mark.parametrize("name", ["", "A", "a_b", "a/b", "1a", "a-", "x" * 21, "ä", "a b"])
def test_a_name_that_could_not_be_part_of_every_prefix_is_refused(name: str) -> None:
    """It is in keys, table names, object keys and workflow ids."""
    with pytest.raises(InvalidConfigError, match=r"name \(HELIX_NAME\): .* is no name of a deployment"):
        Settings(name=name)


def test_a_name_is_not_that_of_another_deployments_maintenance_queue() -> None:
    """The maintenance workers of the one would be given sessions of the other, which they refuse."""
    with pytest.raises(InvalidConfigError, match="does not end in -maintenance"):
        Settings(name="team-a-maintenance")
    assert Settings(name="maintenance").name == "maintenance"
