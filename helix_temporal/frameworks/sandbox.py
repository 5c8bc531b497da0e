"""What our plugins for frameworks change of a worker's sandbox."""

import dataclasses

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner


def pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """The worker's runner, whose sandbox does not load our modules anew; any other runner as it is."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner or SandboxedWorkflowRunner()
    # Redis' driver imports more of itself when its garbage is collected, which may be in a workflow.
    restrictions = runner.restrictions.with_passthrough_modules("helix_temporal", "redis")
    return dataclasses.replace(runner, restrictions=restrictions)
