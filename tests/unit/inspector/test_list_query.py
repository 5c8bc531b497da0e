"""Filters in addresses: what was filtered can be linked, and what can't be understood is told."""

import pytest
from starlette.datastructures import QueryParams

from helix_temporal.inspector.list_query import read_query, widen_for_calls
from helix_temporal.models.states import SessionStatus

NOW = 1_764_398_412_000  # 2025-11-29 06:40:12
MIDNIGHT = 1_764_374_400_000
DAY = 86_400_000


def test_all_that_is_given_is_in_the_filter() -> None:
    """One that is dropped shows sessions that nobody asked for."""
    query = read_query(
        QueryParams(
            "user=jo&agent=support&status=failed&tag=vip&tag=eu&meta=channel=web&meta=order=47=11&roots=1"
        ),
        NOW,
    )
    assert query.problems == ()
    assert query.sessions.user_id == "jo"
    assert query.sessions.agent == "support"
    assert query.sessions.status == (SessionStatus.FAILED,)
    assert query.sessions.tags == ("vip", "eu")
    assert query.sessions.metadata == {"channel": "web", "order": "47=11"}
    assert query.sessions.roots


@pytest.mark.parametrize(
    ("when", "since", "until"),
    [
        ("today", MIDNIGHT, None),
        ("yesterday", MIDNIGHT - DAY, MIDNIGHT),
        ("week", NOW - 7 * DAY, None),
    ],
)
def test_days_are_those_of_utc(when: str, since: int, until: int | None) -> None:
    """As all times on the pages are."""
    query = read_query(QueryParams({"when": when}), NOW)
    assert (query.since, query.until) == (since, until)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2025-11-29", MIDNIGHT),
        ("2025-11-29T06:40:12", NOW),
        ("2025-11-29T07:40:12+01:00", NOW),
        ("2h", NOW - 2 * 3_600_000),
        ("7d", NOW - 7 * DAY),
        ("yesterday", MIDNIGHT - DAY),
    ],
)
def test_a_time_is_what_commands_take(text: str, millis: int) -> None:
    """Who knows ``--since 2h`` writes it into the page; without an offset a date is in UTC."""
    query = read_query(QueryParams({"since": text}), NOW)
    assert (query.since, query.problems) == (millis, ())


@pytest.mark.parametrize(
    "bad", ["status=lost", "need=love", "when=soon", "since=x", "until=2025-13-01", "meta=web"]
)
def test_what_cannot_be_understood_is_told(bad: str) -> None:
    """An old link or a slip of the pen gives a list, not an error, and says what was left out."""
    query = read_query(QueryParams(f"{bad}&user=jo"), NOW)
    assert len(query.problems) == 1
    assert query.sessions.user_id == "jo"


def test_calls_of_a_day_are_looked_for_in_sessions_that_went_on_after_it() -> None:
    """A session that was changed today may have failed yesterday."""
    query = read_query(QueryParams("when=yesterday"), NOW)
    assert widen_for_calls(query).since == MIDNIGHT - DAY
    assert widen_for_calls(query).until is None


def test_an_address_keeps_the_filter() -> None:
    """The next page, a preset and the failed calls are of the same sessions."""
    query = read_query(QueryParams("user=jo&since=2025-11-01&cursor=abc"), NOW)
    assert query.pairs(failed="1") == {"user": "jo", "since": "2025-11-01", "failed": "1"}
    assert query.pairs(when="today") == {"user": "jo", "when": "today"}
    assert query.pairs(user="") == {"since": "2025-11-01"}


def test_tags_and_metadata_are_taken_as_commands_take_them() -> None:
    """A comma belongs to the value; several values are given one by one, and all links keep them."""
    query = read_query(QueryParams("tag=c,d&tag=&tag=+e+&meta=order=1,2&meta=channel=web"), NOW)
    assert query.sessions.tags == ("c,d", "e")
    assert query.sessions.metadata == {"order": "1,2", "channel": "web"}
    assert query.is_narrowed
    assert query.pairs(user="jo") == {
        "tag": ("c,d", "e"),
        "meta": ("order=1,2", "channel=web"),
        "user": "jo",
    }


def test_a_value_of_failed_that_is_none_is_told() -> None:
    """A list of all calls must not pass for one of those that failed."""
    assert read_query(QueryParams("failed=9"), NOW).problems == ("failed: '9' is not one of 0, 1",)
    assert read_query(QueryParams("failed=0"), NOW).problems == ()
