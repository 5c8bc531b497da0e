"""Pages of what Temporal and the archive tell, from their data."""

from typing import Any, cast

from temporalio.client import Client

from helix_temporal import SessionClient
from helix_temporal.backends import Backends
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.inspector.page_request import InspectorSettings, PageLinks, PageRequest
from helix_temporal.inspector.pages.maintenance import show_schedules
from helix_temporal.inspector.pages.storage import describe_audit
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import Audit
from helix_temporal.views.models import ScheduleFacts, ScheduleRun
from tests.unit.inspector._asking import holding_link


def make_page(**settings: Any) -> PageRequest:
    """A request for a page that reads no session."""
    links = PageLinks(create_inspector(Backends(Settings())).router)
    return PageRequest(cast("Any", None), Viewer(), InspectorSettings(**settings), "", links)


def test_a_schedule_that_failed_says_why_and_leads_to_temporal() -> None:
    """Whoever is on call reads the reason here, and the history there."""
    failed = ScheduleRun(
        at=1_764_398_412_000, workflow_id="m/keep", run_id="r-1", status="failed", failure="S3Error: 503"
    )
    schedules = (
        ScheduleFacts(schedule_id="m/keep", kind="keep", recent=(failed,)),
        ScheduleFacts(schedule_id="m/sweep", kind="sweep", paused=True, note="for <the> migration"),
    )
    page = make_page(temporal_ui="http://localhost:8233")
    shown = bytes(show_schedules(page, schedules, None).body).decode()
    assert "S3Error: 503" in shown
    assert "last run failed" in shown
    assert 'href="http://localhost:8233/namespaces/default/workflows/m%2Fkeep/r-1/history"' in shown
    assert "for &lt;the&gt; migration" in shown


async def test_the_clients_temporal_is_asked_for_schedules() -> None:
    """Who mounts the page has given a client; the page must not say that there is no connection."""
    client = SessionClient(await Client.connect("127.0.0.1:1", lazy=True))
    async with holding_link(create_inspector(Backends(Settings()), client=client)) as browser:
        shown = (await browser.get("/maintenance")).text
    assert "Temporal does not answer just now" in shown
    assert "no connection to Temporal" not in shown


def test_without_temporal_no_link_leads_there() -> None:
    """A link to nowhere wastes a click."""
    run = ScheduleRun(at=1, workflow_id="m/keep")
    schedules = (ScheduleFacts(schedule_id="m/keep", kind="keep", recent=(run,)),)
    assert "/namespaces/" not in bytes(show_schedules(make_page(), schedules, None).body).decode()


def test_a_sound_thread_is_called_sound() -> None:
    """And what is not archived yet is no damage."""
    told = describe_audit(Audit("t", unarchived=4), None)
    assert (told.heading, told.tone) == ("Sound.", "good")
    assert "4 messages are not archived yet" in told.text


def test_damage_is_counted_and_listed() -> None:
    """The first of it is what one repairs."""
    told = describe_audit(Audit("t", tuple(f"message {n}" for n in range(30))), None)
    assert (told.heading, told.tone) == ("30 things are wrong.", "bad")
    assert told.findings[0] == "message 0"
    assert len(told.findings) == 20


def test_a_thread_that_could_not_be_verified_is_not_called_sound() -> None:
    """No answer is no proof."""
    assert describe_audit(None, "the bucket does not answer").heading == "Not verified."
