"""From what travels to what the protocols take."""

from helix_temporal.models.steps import ReopenHeads
from helix_temporal.stores.protocols.threads import Reopen


def as_reopen(heads: ReopenHeads | None) -> Reopen | None:
    """What a workflow says of itself when it opens again."""
    if heads is None:
        return None
    return Reopen(heads.known, heads.turn_start, heads.inputs, heads.answered, heads.reset)
