"""A workflow that calls one activity by its wire name, with whatever it is given."""

from datetime import timedelta
from typing import Any

from temporalio import workflow


@workflow.defn(name="tests.caller")
class CallActivity:
    """As a worker of another version, or another language, would."""

    @workflow.run
    async def run(self, name: str, argument: Any) -> Any:
        return await workflow.execute_activity(name, argument, start_to_close_timeout=timedelta(seconds=10))
