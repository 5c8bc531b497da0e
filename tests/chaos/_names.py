"""Ids of the sessions of a campaign: those of one never meet those of another in the same run."""


def session_id(campaign: str, seed: int, *parts: object) -> str:
    """An id that begins with the campaign's whole name: with one letter two of them had the same."""
    return "-".join(["-".join(campaign.replace(",", "").split()), str(seed), *map(str, parts)])
