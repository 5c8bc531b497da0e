"""Campaigns of one run share a namespace, a Redis and a bucket."""

import itertools
from pathlib import Path

from helix_temporal.settings import Settings
from tests.chaos._children import ChildKillCampaign
from tests.chaos._kills import KillCampaign
from tests.chaos._streams import StreamKills
from tests.chaos._trees import TreeKills
from tests.chaos._waits import WaitKills


def test_no_two_campaigns_of_a_run_talk_in_one_session(settings: Settings, tmp_path: Path) -> None:
    """One that finds the other's messages reports losses that are none: seed 987 showed 80."""
    campaigns = [
        KillCampaign(settings, tmp_path, seed=987),
        KillCampaign(settings, tmp_path, seed=987, graceful=True),
        ChildKillCampaign(settings, tmp_path, seed=987),
        TreeKills(settings, tmp_path, seed=987),
        StreamKills(settings, tmp_path, seed=987),
        WaitKills(settings, tmp_path, seed=987, suspend="wait"),
        WaitKills(settings, tmp_path, seed=987, suspend="exit"),
    ]
    names = list(itertools.chain.from_iterable(campaign.session_ids for campaign in campaigns))
    books = [campaign.books for campaign in campaigns]
    assert len(set(names)) == len(names)
    assert len(set(books)) == len(books)
