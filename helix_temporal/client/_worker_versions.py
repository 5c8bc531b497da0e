"""Which versions of a Worker Deployment are given new work, as a task queue says."""

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.taskqueue.v1 import TaskQueueVersioningInfo


def is_given_work(deployment_name: str, build_id: str, routes: TaskQueueVersioningInfo) -> bool:
    """Whether the version is current, or ramping."""
    return any(
        (each.deployment_name, each.build_id) == (deployment_name, build_id) for each in _targets(routes)
    )


def describe_idle_version(deployment_name: str, build_id: str) -> str:
    """That a version is given no new work, and what to do; also of one that was current before."""
    return (
        f"build {build_id!r} of Worker Deployment {deployment_name!r}, which is not current: it gets no new "
        "work, only that of runs that are pinned to it (one that was never current becomes it by: temporal "
        f"worker deployment set-current-version --deployment-name {deployment_name} --build-id {build_id})"
    )


def _targets(routes: TaskQueueVersioningInfo) -> tuple[WorkerDeploymentVersion, ...]:
    return routes.current_deployment_version, routes.ramping_deployment_version
