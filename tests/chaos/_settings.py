"""Time-outs in which a campaign of hundreds of failures is bearable."""

from datetime import timedelta

from helix_temporal.settings import Settings, Timeouts


def quick(settings: Settings, *, heartbeat: float = 1.0) -> Settings:
    """The same stores, with a lost worker noticed within ``heartbeat`` seconds.

    Where no worker is lost it may be long: on a busy machine a short one takes live workers for dead.
    """
    timeouts = Timeouts(
        heartbeat_timeout=timedelta(seconds=heartbeat),
        heartbeat_every=timedelta(seconds=0.25),
        max_heartbeat_throttle_interval=timedelta(seconds=0.25),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        store_start_to_close=timedelta(seconds=5),
        store_retry_initial=timedelta(milliseconds=50),
        store_retry_maximum=timedelta(seconds=1),
        flush_retry_maximum=timedelta(seconds=2),
        finaliser_budget=timedelta(seconds=60),
    )
    return settings.model_copy(update={"timeouts": timeouts})
