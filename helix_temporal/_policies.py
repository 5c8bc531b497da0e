"""What workflows must know of the settings: they read none themselves."""

from helix_temporal.models.sessions import CallPolicy
from helix_temporal.settings import Settings


def call_policy(settings: Settings) -> CallPolicy:
    """Time-outs and retries of activities, as these settings have them."""
    timeouts = settings.timeouts
    return CallPolicy(
        store_start_to_close=timeouts.store_start_to_close.total_seconds(),
        store_schedule_to_close=timeouts.store_schedule_to_close.total_seconds(),
        retry_initial=timeouts.store_retry_initial.total_seconds(),
        retry_backoff=timeouts.store_retry_backoff,
        retry_maximum=timeouts.store_retry_maximum.total_seconds(),
        heartbeat=timeouts.heartbeat_timeout.total_seconds(),
        model_start_to_close=timeouts.model_start_to_close.total_seconds(),
        tool_start_to_close=timeouts.tool_start_to_close.total_seconds(),
        model_schedule_to_close=timeouts.model_budget.total_seconds(),
        roll_out=timeouts.roll_out.total_seconds(),
        finaliser_budget=timeouts.finaliser_budget.total_seconds(),
        flush_retry_maximum=timeouts.flush_retry_maximum.total_seconds(),
        flush_each_step=settings.flush == "step",
    )
