"""The bare workflow: an update that runs one activity.  As anybody would write it, in the default sandbox."""

from datetime import timedelta

from pydantic import BaseModel
from temporalio import workflow


class Said(BaseModel):
    """What is said, both ways; ``id`` is the message's."""

    id: str
    text: str


class BareInput(BaseModel):
    """Which activity a turn is."""

    session_id: str
    activity: str


class Turn(BaseModel):
    """What the activity gets."""

    session_id: str
    number: int
    said: Said


@workflow.defn(name="bench.bare")
class BareWorkflow:
    """Waits for asks until it is closed."""

    @workflow.init
    def __init__(self, start: BareInput) -> None:
        self._start, self._turns, self._closed = start, 0, False

    @workflow.run
    async def run(self, _: BareInput) -> int:
        """Serve asks; gives how many there were."""
        await workflow.wait_condition(lambda: self._closed and workflow.all_handlers_finished())
        return self._turns

    @workflow.update
    async def ask(self, said: Said) -> Said:
        """One turn."""
        self._turns += 1
        turn = Turn(session_id=self._start.session_id, number=self._turns, said=said)
        answer: Said = await workflow.execute_activity(
            self._start.activity, turn, result_type=Said, start_to_close_timeout=timedelta(seconds=60)
        )
        return answer

    @workflow.signal
    def close(self) -> None:
        """End after what is under way."""
        self._closed = True
