"""The worker version that a pinned run is to go on with, where the SDK and the server tell of it."""

from typing import Final, NoReturn

from temporalio import workflow

IS_TOLD: Final = hasattr(workflow, "ContinueAsNewVersioningBehavior") and hasattr(
    workflow.Info, "is_target_worker_deployment_version_changed"
)
"""Whether this SDK tells a pinned run that it should move; without that none is pinned."""


def has_target_changed() -> bool:
    """Whether the run is pinned to another version than it would be started on now.

    The server says so with each workflow task, so a replay is told the same.
    """
    return IS_TOLD and workflow.info().is_target_worker_deployment_version_changed()


def find_worker_version() -> str | None:
    """The worker version that has this workflow task, as ``name:build``; None without Worker Versioning."""
    version = workflow.info().get_current_deployment_version()
    # The SDK makes a build id for every worker; only one with Worker Versioning has a name.
    if version is None or not version.deployment_name:
        return None
    return f"{version.deployment_name}:{version.build_id}"


def continue_on_target_version(argument: object) -> NoReturn:
    """Continue as new on the version that new runs are started on, and not on that of this run.

    Raises:
        ContinueAsNewError: Always.
    """
    behaviour = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    workflow.continue_as_new(argument, initial_versioning_behavior=behaviour)
