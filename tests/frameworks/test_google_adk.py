"""`HelixSessionService` as ADK's own tests ask it of a session service, under its runner, and beyond."""

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig
from google.adk.artifacts import artifact_util
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import Field

from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidMessageError,
    StoreUnavailableError,
    TooLargeError,
)
from helix_temporal.errors import SessionNotFoundError as HelixSessionNotFoundError
from helix_temporal.frameworks.google_adk import HelixArtifactService, HelixSessionService
from helix_temporal.frameworks.google_adk.artifacts import MAX_ARTIFACT
from helix_temporal.frameworks.google_adk.events import encode_event
from helix_temporal.frameworks.google_adk.keys import UserSessionKey
from helix_temporal.models.foreign_rows import read_foreign_row
from helix_temporal.stores.protocols.sessions import SessionStore
from tests._production import Production
from tests.docs._pages import ROOT, titled
from tests.frameworks.conftest import BackendsOpener, StoreOpener

APP: Any = {"app_name": "shop", "user_id": "ann"}
S1: Any = {**APP, "session_id": "s1"}


@pytest.fixture
async def service(store: SessionStore) -> HelixSessionService:
    """The service over an empty store."""
    return HelixSessionService(store)


def said(text: str, **more: Any) -> Event:
    """An event that says something."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(**{"author": "user", "invocation_id": "i", "content": content, **more})


def changed(event_id: str = "", at: float | None = None, **state: Any) -> Event:
    """An event that changes the state; ``app_`` and ``user_`` stand for the prefixes."""
    delta = {key.replace("app_", "app:").replace("user_", "user:"): value for key, value in state.items()}
    times = {} if at is None else {"timestamp": at}
    return Event(id=event_id, author="user", actions=EventActions(state_delta=delta), **times)


async def reloaded(service: HelixSessionService, session: Session, **config: Any) -> Session:
    """The session as it is stored."""
    found = await service.get_session(
        app_name=session.app_name,
        user_id=session.user_id,
        session_id=session.id,
        config=GetSessionConfig(**config) if config else None,
    )
    assert found is not None
    return found


def texts(session: Session) -> list[str]:
    """What was said."""
    return [each.content.parts[0].text for each in session.events]


class TestAsAdkAsksOfASessionService:
    """What ADK's own tests hold every backend to, in words of ours."""

    async def test_a_session_is_there_until_it_is_deleted(self, service: HelixSessionService) -> None:
        """As it was made, under an id that was made for it."""
        assert await service.get_session(**S1) is None
        made = await service.create_session(**APP, state={"key": "value"})
        assert (made.app_name, made.user_id, made.state) == ("shop", "ann", {"key": "value"})
        assert made.id
        assert made.last_update_time <= time.time()
        assert await reloaded(service, made) == made
        await service.delete_session(**APP, session_id=made.id)
        assert await service.get_session(**APP, session_id=made.id) is None

    async def test_what_is_not_there_is_deleted_without_a_word(self, service: HelixSessionService) -> None:
        """And nothing else goes with it."""
        made = await service.create_session(**S1)
        await service.delete_session(**APP, session_id="another")
        await service.delete_session(app_name="shop", user_id="bob", session_id="s1")
        assert await reloaded(service, made) == made

    async def test_sessions_are_listed_with_their_states_and_without_events(
        self, service: HelixSessionService
    ) -> None:
        """Those of a user, or of all users of the application."""
        for user, name in (("ann", "a1"), ("ann", "a2"), ("bob", "b1")):
            state = {"key": name, "user:of": user, "app:all": 1, "temp:gone": 1}
            made = await service.create_session(app_name="shop", user_id=user, session_id=name, state=state)
            await service.append_event(made, said("hi"))
        await service.create_session(app_name="other", user_id="ann")

        async def listed(**names: Any) -> list[Any]:
            found = await service.list_sessions(app_name="shop", **names)
            assert not any(each.events for each in found.sessions)
            return [(each.id, each.state) for each in found.sessions]

        def state_of(name: str, user: str) -> Any:
            return {"key": name, "user:of": user, "app:all": 1}

        anns = [("a1", state_of("a1", "ann")), ("a2", state_of("a2", "ann"))]
        assert await listed(user_id="ann") == anns
        assert await listed() == [*anns, ("b1", state_of("b1", "bob"))]
        assert await listed(user_id="nobody") == []
        assert await listed(user_id="") == []

    async def test_a_list_ends_with_the_session_that_was_used_last(
        self, service: HelixSessionService
    ) -> None:
        """By the time of its last event; equal times go by user and id."""
        for name in ("a", "b", "c"):
            made = await service.create_session(**APP, session_id=name)
            await service.append_event(made, changed(at=100.0 if name == "a" else 50.0))
        listed = await service.list_sessions(**APP)
        assert [each.id for each in listed.sessions] == ["b", "c", "a"]

    async def test_the_state_of_an_application_is_for_all_its_users(
        self, service: HelixSessionService
    ) -> None:
        """From the beginning of a session, and from events."""
        one = await service.create_session(**S1, state={"app:k1": "v1"})
        await service.append_event(one, changed(app_k2="v2"))
        two = await service.create_session(app_name="shop", user_id="bob")
        assert two.state == {"app:k1": "v1", "app:k2": "v2"}
        assert (await reloaded(service, one)).state == two.state
        assert (await service.create_session(app_name="other", user_id="bob")).state == {}

    async def test_the_state_of_a_user_is_for_all_sessions_of_the_user(
        self, service: HelixSessionService
    ) -> None:
        """And of nobody else."""
        one = await service.create_session(**S1, state={"user:k1": "v1"})
        await service.append_event(one, changed(user_k2="v2"))
        assert (await service.create_session(**APP)).state == {"user:k1": "v1", "user:k2": "v2"}
        assert (await service.create_session(app_name="shop", user_id="bob")).state == {}
        assert (await service.create_session(app_name="other", user_id="ann")).state == {}

    async def test_the_state_of_a_session_is_its_own(self, service: HelixSessionService) -> None:
        """It is kept over its events."""
        one = await service.create_session(**S1, state={"k1": "v1"})
        await service.append_event(one, changed(k2="v2"))
        assert (await reloaded(service, one)).state == {"k1": "v1", "k2": "v2"}
        assert (await service.create_session(**APP)).state == {}

    @pytest.mark.parametrize("prefix", ["", "app:", "user:"])
    async def test_a_value_is_replaced_as_a_whole(self, service: HelixSessionService, prefix: str) -> None:
        """None is a value; what is not named stays, with its type."""
        session = await service.create_session(
            **S1, state={f"{prefix}who": {"name": "ann", "role": "x"}, f"{prefix}on": False, f"{prefix}n": 1}
        )
        delta = {f"{prefix}who": {"name": "bob"}, f"{prefix}n": None}
        await service.append_event(session, Event(author="a", actions=EventActions(state_delta=delta)))
        expected = {f"{prefix}who": {"name": "bob"}, f"{prefix}on": False, f"{prefix}n": None}
        assert session.state == expected
        assert (await reloaded(service, session)).state == expected

    async def test_temporary_state_is_for_the_run_alone(self, service: HelixSessionService) -> None:
        """The session in memory has it; what is stored does not, nor has the event."""
        session = await service.create_session(**S1)
        event = await service.append_event(
            session, Event(author="a", actions=EventActions(state_delta={"temp:k": 1, "kept": 2}))
        )
        assert session.state == {"temp:k": 1, "kept": 2}
        assert event.actions.state_delta == {"kept": 2}
        found = await reloaded(service, session)
        assert found.state == {"kept": 2}
        assert found.events[0].actions.state_delta == {"kept": 2}

    async def test_one_id_is_a_session_for_each_user(self, service: HelixSessionService) -> None:
        """Their events do not meet."""
        await service.append_event(await service.create_session(**S1), said("ann's"))
        other = await service.create_session(app_name="shop", user_id="bob", session_id="s1")
        assert (await reloaded(service, other)).events == []

    async def test_an_id_is_taken_once(self, service: HelixSessionService) -> None:
        """Also with blanks around it; the first session stays as it is."""
        made = await service.create_session(**S1, state={"keep": "original"})
        for name in ("s1", "  s1\n"):
            with pytest.raises(AlreadyExistsError, match="s1 already exists"):
                await service.create_session(**APP, session_id=name, state={"app:keep": "no"})
        assert await reloaded(service, made) == made

    async def test_blanks_around_an_id_do_not_count(self, service: HelixSessionService) -> None:
        """An id of blanks alone is replaced by a new one."""
        made = await service.create_session(**APP, session_id="order-42\n", state={"cart": "book"})
        found = await service.get_session(**APP, session_id="order-42\n")
        assert found is not None
        assert (made.id, found.id, found.state) == ("order-42", "order-42", {"cart": "book"})
        await service.delete_session(**APP, session_id="order-42\n")
        assert await service.get_session(**APP, session_id="order-42") is None
        assert (await service.create_session(**APP, session_id="  ")).id.strip()

    async def test_an_event_comes_back_as_it_was(self, service: HelixSessionService) -> None:
        """With all that it may have: bytes, transcriptions, confirmations, what is told about it."""
        session = await service.create_session(**S1)
        part = types.Part.from_bytes(data=b"\xff\x00 picture", mime_type="image/png")
        confirmation = ToolConfirmation(hint="sure?", confirmed=False, payload={"album": "a1"})
        event = Event(
            invocation_id="i",
            author="user",
            content=types.Content(role="user", parts=[types.Part(text="\x00\ud800 é"), part]),
            turn_complete=True,
            partial=False,
            actions=EventActions(
                artifact_delta={"file": 0},
                transfer_to_agent="agent",
                escalate=True,
                requested_tool_confirmations={"call": confirmation},
            ),
            long_running_tool_ids={"tool1"},
            error_code="code",
            error_message="message",
            interrupted=True,
            grounding_metadata=types.GroundingMetadata(
                web_search_queries=["q"], search_entry_point=types.SearchEntryPoint(sdk_blob=b"blob")
            ),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
            citation_metadata=types.CitationMetadata(),
            custom_metadata={"custom": "value"},
            timestamp=1700000000.123,
            input_transcription=types.Transcription(text="in", finished=True),
            output_transcription=types.Transcription(text="out", finished=True),
        )
        await service.append_event(session, event)
        assert await reloaded(service, session) == session
        assert (await reloaded(service, session)).events == [event]

    async def test_values_that_are_no_data_do_not_keep_an_event_away(
        self, service: HelixSessionService
    ) -> None:
        """They are stored as a text that says what they were; a time as ISO text."""
        session = await service.create_session(**S1, state={"when": datetime(2026, 1, 2, tzinfo=UTC)})
        await service.append_event(session, changed(callback=lambda: 1, ok=2))
        state = (await reloaded(service, session)).state
        assert (state["ok"], state["when"]) == (2, "2026-01-02T00:00:00Z")
        assert isinstance(state["callback"], str)

    async def test_the_time_of_a_session_is_that_of_its_last_event(
        self, service: HelixSessionService
    ) -> None:
        """Exactly, in memory and in the store."""
        session = await service.create_session(**S1)
        at = session.last_update_time + 10.123456
        await service.append_event(session, changed(at=at))
        assert session.last_update_time == at
        assert (await reloaded(service, session)).last_update_time == at

    async def test_a_part_of_the_events_is_read(self, service: HelixSessionService) -> None:
        """The newest, those from a time on, or both; the time itself is included."""
        session = await service.create_session(**S1)
        for number in range(1, 6):
            await service.append_event(session, said(str(number), timestamp=float(number)))

        async def read(**config: Any) -> list[str]:
            return texts(await reloaded(service, session, **config))

        assert await read() == ["1", "2", "3", "4", "5"]
        assert await read(num_recent_events=0) == []
        assert await read(num_recent_events=3) == ["3", "4", "5"]
        assert await read(num_recent_events=9) == ["1", "2", "3", "4", "5"]
        assert await read(after_timestamp=4.0) == ["4", "5"]
        assert await read(after_timestamp=50.0) == []
        assert await read(after_timestamp=4.0, num_recent_events=3) == ["4", "5"]
        assert await read(after_timestamp=2.0, num_recent_events=2) == ["4", "5"]

    async def test_a_part_of_an_event_is_not_stored(self, service: HelixSessionService) -> None:
        """Neither in memory: the whole one comes."""
        session = await service.create_session(**S1)
        await service.append_event(session, said("par", partial=True))
        assert session.events == []
        assert (await reloaded(service, session)).events == []

    async def test_the_state_of_a_user_is_read_without_a_session(self, service: HelixSessionService) -> None:
        """By keys without the prefix; empty where nothing was ever written."""
        assert await service.get_user_state(**APP) == {}
        session = await service.create_session(**S1)
        for count in (1, 2):
            await service.append_event(session, changed(user_count=count, user_profile={"n": "A"}, own=1))
        assert await service.get_user_state(**APP) == {"count": 2, "profile": {"n": "A"}}
        assert await service.get_user_state(app_name="shop", user_id="bob") == {}
        assert await service.get_user_state(app_name="other", user_id="ann") == {}

    async def test_a_session_without_a_marker_goes_on_where_it_has_the_last_event(
        self, service: HelixSessionService
    ) -> None:
        """As one that was made by hand, or came as JSON; without the last event it is stale."""
        session = await service.create_session(**S1)
        await service.append_event(session, said("a"))
        carried = Session.model_validate_json(session.model_dump_json())
        await service.append_event(carried, said("b"))
        again = Session.model_validate_json(session.model_dump_json())
        with pytest.raises(StaleSessionError):
            await service.append_event(again, said("c"))
        assert texts(await reloaded(service, session)) == ["a", "b"]


class Forgetful:
    """A store that does what it is told, and then does not answer."""

    def __init__(self, inner: Any, *methods: str, times: int = 1) -> None:
        self._inner, self._left = inner, dict.fromkeys(methods, times)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._left:
            return method

        async def call(*args: Any, **named: Any) -> Any:
            answer = await method(*args, **named)
            self._left[name] -= 1
            if self._left[name] >= 0:
                raise StoreUnavailableError("the answer was lost")
            return answer

        return call


class TestBeyond:
    """What ADK's tests do not ask for."""

    async def test_one_that_has_not_seen_the_last_event_is_refused(
        self, service: HelixSessionService
    ) -> None:
        """Though the times are equal, and so are the numbers of events; nothing of it is stored."""
        made = await service.create_session(**S1)
        stale = await reloaded(service, made)
        await service.append_event(made, changed("e1", at=made.last_update_time, k=1))
        with pytest.raises(StaleSessionError, match="modified in storage"):
            await service.append_event(stale, changed("e2", at=made.last_update_time, k=2, app_k=2, user_k=2))
        found = await reloaded(service, made)
        assert ([each.id for each in found.events], found.state) == (["e1"], {"k": 1})
        await service.append_event(found, changed("e2", k=2))
        assert (await reloaded(service, made)).state == {"k": 2}

    async def test_of_two_writers_one_succeeds(self, open_store: StoreOpener) -> None:
        """Each time anew, from two processes: the events that stand are those that were acknowledged."""
        async with open_store() as one, open_store() as two:
            services = [HelixSessionService(one), HelixSessionService(two)]
            made = await services[0].create_session(**S1)
            kept = []
            for at in range(6):
                sessions = [await reloaded(each, made) for each in services]
                events = [said(f"{at}-{n}", timestamp=5.0) for n in range(2)]
                done = await asyncio.gather(
                    *(
                        each.append_event(session, event)
                        for each, session, event in zip(services, sessions, events, strict=True)
                    ),
                    return_exceptions=True,
                )
                refused = [each for each in done if isinstance(each, BaseException)]
                assert [type(each) for each in refused] == [StaleSessionError]
                kept += [each.id for each in done if isinstance(each, Event)]
            assert [each.id for each in (await reloaded(services[0], made)).events] == kept

    async def test_agents_side_by_side_share_a_session_object(self, service: HelixSessionService) -> None:
        """Their events go one behind the other."""
        session = await service.create_session(**S1)
        await asyncio.gather(*(service.append_event(session, said(str(n))) for n in range(10)))
        assert sorted(texts(await reloaded(service, session))) == sorted(map(str, range(10)))
        assert await reloaded(service, session) == session

    @pytest.mark.parametrize("method", ["append_messages", "merge_custom_state"])
    async def test_an_event_whose_answer_was_lost_stands_once(self, store: SessionStore, method: str) -> None:
        """The service asks again by itself; the state is as after one."""
        service = HelixSessionService(Forgetful(store, method, times=2))
        session = await service.create_session(**S1)
        await service.append_event(session, changed("e1", k=1, app_k=1, user_k=1))
        found = await reloaded(service, session)
        assert [each.id for each in found.events] == ["e1"]
        assert found == session
        assert found.state == {"k": 1, "app:k": 1, "user:k": 1}

    @pytest.mark.parametrize("method", ["append_messages", "merge_custom_state"])
    async def test_an_event_that_is_given_again_after_an_error_stands_once(
        self, store: SessionStore, method: str
    ) -> None:
        """By whoever was told that the store does not answer; also after others have gone on."""
        made = await HelixSessionService(store).create_session(**S1, state={"app:a": 0, "user:u": 0})
        forgetful = HelixSessionService(Forgetful(store, method, times=5))
        event = changed("e1", k=1, app_k=1, user_k=1)
        with pytest.raises(StoreUnavailableError):
            await forgetful.append_event(made, event)
        service = HelixSessionService(store)
        other = await reloaded(service, made)
        await service.append_event(other, changed("e2", k=2))
        await service.append_event(made, event)
        await service.append_event(await reloaded(service, made), event)
        found = await reloaded(service, made)
        assert [each.id for each in found.events] == ["e1", "e2"]
        assert found.state == {"k": 2, "app:a": 0, "app:k": 1, "user:u": 0, "user:k": 1}

    async def test_a_repeat_does_not_bring_an_older_state_back(self, service: HelixSessionService) -> None:
        """Neither that of the session nor what it shares with others."""
        session = await service.create_session(**S1)
        first = changed("e1", k=1, app_k=1)
        await service.append_event(session, first)
        await service.append_event(session, changed("e2", k=2, app_k=2))
        for each in (session, await reloaded(service, session), await reloaded(service, session)):
            await service.append_event(each, first)
        found = await reloaded(service, session, num_recent_events=1)
        await service.append_event(found, first)
        whole = await reloaded(service, session)
        assert [each.id for each in whole.events] == ["e1", "e2"]
        assert whole.state == {"k": 2, "app:k": 2}

    async def test_a_turn_that_is_done_again_makes_its_events_later(
        self, service: HelixSessionService
    ) -> None:
        """An event of the same id that says the same stands already, whatever time it has."""
        session = await service.create_session(**S1)
        await service.append_event(session, changed("e1", at=1.0, k=1, app_k=1))
        await service.append_event(session, changed("e2", at=2.0, k=2))
        for each in (session, await reloaded(service, session)):
            await service.append_event(each, changed("e1", at=3.0, k=1, app_k=1))
        whole = await reloaded(service, session)
        assert [(each.id, each.timestamp) for each in whole.events] == [("e1", 1.0), ("e2", 2.0)]
        assert whole.state == {"k": 2, "app:k": 1}

    async def test_an_event_whose_writer_died_before_its_state_is_finished(
        self, service: HelixSessionService, store: SessionStore
    ) -> None:
        """By whoever reads the session next; and its writer's repeat finds it done."""
        made = await service.create_session(**S1)
        await service.append_event(made, changed("e1", k=1))
        other = await reloaded(service, made)
        event = changed("e2", k=2, app_k=2, user_k=2)
        # As where a thread has an archive: the message stands, and the state is still to follow.
        await store.append_messages(UserSessionKey.of("shop", "ann", "s1").store_id, [encode_event(event)])
        with pytest.raises(StaleSessionError):
            await service.append_event(other, changed("e3", k=3))
        found = await reloaded(service, made)
        assert [each.id for each in found.events] == ["e1", "e2"]
        assert found.state == {"k": 2, "app:k": 2, "user:k": 2}
        await service.append_event(found, changed("e3", k=3))
        await service.append_event(made, event)
        found = await reloaded(service, made)
        assert ([each.id for each in found.events], found.state["k"]) == (["e1", "e2", "e3"], 3)

    async def test_another_event_under_an_id_that_is_taken_is_refused(
        self, service: HelixSessionService
    ) -> None:
        """It is no repeat."""
        session = await service.create_session(**S1)
        await service.append_event(session, said("a", id="e1"))
        with pytest.raises(IdempotencyConflictError, match="e1"):
            await service.append_event(session, said("b", id="e1"))
        assert texts(await reloaded(service, session)) == ["a"]

    async def test_a_session_is_begun_once_though_the_answer_was_lost(self, store: SessionStore) -> None:
        """It is no other one that has the id."""
        service = HelixSessionService(Forgetful(store, "create_session"))
        session = await service.create_session(**S1, state={"k": 1, "app:k": 1})
        assert session.state == {"k": 1, "app:k": 1}
        assert await reloaded(service, session) == session

    async def test_changes_of_the_applications_state_at_once_are_all_kept(
        self, open_store: StoreOpener
    ) -> None:
        """From twenty sessions in two processes."""
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(open_store()) for _ in range(2)]
            services = [HelixSessionService(each) for each in stores]
            sessions = [
                await services[n % 2].create_session(app_name="shop", user_id=f"u{n}") for n in range(20)
            ]
            await asyncio.gather(
                *(
                    services[n % 2].append_event(each, changed("", None, **{f"app_k{n}": n}))
                    for n, each in enumerate(sessions)
                )
            )
            made = await services[0].create_session(app_name="shop", user_id="last")
            assert made.state == {f"app:k{n}": n for n in range(20)}

    async def test_a_session_that_was_deleted_is_not_brought_back(self, open_store: StoreOpener) -> None:
        """By one that has it in memory: neither its events nor its state, nor what it shares."""
        async with open_store() as one, open_store() as two:
            late, other = HelixSessionService(one), HelixSessionService(two)
            session = await late.create_session(**S1)
            await late.append_event(session, said("a"))
            carried = Session.model_validate_json(session.model_dump_json())
            await other.delete_session(**S1)
            for each in (session, carried):
                with pytest.raises(SessionNotFoundError):
                    await late.append_event(each, changed(app_k=1, user_k=1))
            assert await other.get_session(**S1) is None
            assert (await other.list_sessions(**APP)).sessions == []
            assert await other.get_user_state(**APP) == {}

    async def test_a_session_that_is_begun_anew_is_another_one(self, open_store: StoreOpener) -> None:
        """One that has the deleted one in memory is refused, though as many events stand in the new one."""
        async with open_store() as one, open_store() as two:
            late, other = HelixSessionService(one), HelixSessionService(two)
            old = await late.create_session(**S1)
            await late.append_event(old, said("old"))
            await other.delete_session(**S1)
            new = await other.create_session(**S1)
            await other.append_event(new, said("new"))
            with pytest.raises(StaleSessionError):
                await late.append_event(old, said("late"))
            assert texts(await reloaded(other, new)) == ["new"]

    async def test_a_conversation_is_there_in_another_process(self, open_store: StoreOpener) -> None:
        """And goes on with what that process had in memory."""
        async with open_store() as store:
            session = await HelixSessionService(store).create_session(**S1, state={"user:u": 1})
            await HelixSessionService(store).append_event(session, changed(k=1))
        async with open_store() as store:
            service = HelixSessionService(store)
            assert await reloaded(service, session) == session
            await service.append_event(session, said("on"))
            assert len((await reloaded(service, session)).events) == 2

    async def test_a_thousand_events_are_read(
        self, service: HelixSessionService, store: SessionStore
    ) -> None:
        """Over several pages, whole, and from the end."""
        session = await service.create_session(**S1)
        for number in range(450):
            await service.append_event(session, said(str(number), timestamp=float(number)))
        numbers = [str(number) for number in range(450)]
        assert texts(await reloaded(service, session)) == numbers
        assert texts(await reloaded(service, session, num_recent_events=301)) == numbers[-301:]
        assert texts(await reloaded(service, session, after_timestamp=100.0)) == numbers[100:]

    async def test_values_that_not_every_store_can_hold_come_back(self, service: HelixSessionService) -> None:
        """NUL, lone surrogates, numbers without an end, and what looks like their wrapping."""
        odd = {"a": "\x00\ud800", "b": [2**80, -math.inf], "c": {"google-adk/json": "1"}, "last_event": 1}
        session = await service.create_session(**S1, state=odd)
        await service.append_event(session, changed(more="\x00", app_more="\x00", user_more="\ud800"))
        expected = {**odd, "more": "\x00", "app:more": "\x00", "user:more": "\ud800"}
        assert (await reloaded(service, session)).state == expected

    async def test_a_key_that_no_store_can_hold_is_refused(self, service: HelixSessionService) -> None:
        """Before anything is stored."""
        session = await service.create_session(**S1)
        with pytest.raises(InvalidMessageError):
            await service.append_event(session, changed("", None, **{"a\x00": 1}))
        assert (await reloaded(service, session)).events == []

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (("a", 'b","c', "d"), ('a","b', "c", "d")),
            (("a/b", "c", "d"), ("a", "b/c", "d")),
            (("a", "b", "x" * 300), ("a", "b", "x" * 301)),
        ],
    )
    async def test_names_do_not_meet(self, service: HelixSessionService, one: Any, other: Any) -> None:
        """However they are made up, and however long they are."""
        first = dict(zip(("app_name", "user_id", "session_id"), one, strict=True))
        second = dict(zip(("app_name", "user_id", "session_id"), other, strict=True))
        made = await service.create_session(**first, state={"app:k": 1, "user:k": 1})
        assert await service.get_session(**second) is None
        await service.create_session(**second)
        assert (made.app_name, made.user_id, made.id) == one
        listed = await service.list_sessions(app_name=one[0], user_id=one[1])
        assert one[2] in [each.id for each in listed.sessions]

    async def test_other_readers_of_the_store_understand_the_events(
        self, service: HelixSessionService, store: SessionStore
    ) -> None:
        """As rows of ADK: who speaks, and what is called."""
        session = await service.create_session(**S1)
        await service.append_event(session, said("hello"))
        call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}))
        content = types.Content(role="model", parts=[call])
        await service.append_event(session, Event(author="agent", content=content))
        page = await store.get_messages(UserSessionKey.of("shop", "ann", "s1").store_id)
        rows = [read_foreign_row(row) for row in page.messages]
        assert [row.role for row in rows if row] == ["user", "assistant"]
        assert rows[1] is not None
        assert [each.id for each in rows[1].calls] == ["c1"]


class Scripted(BaseLlm):
    """Answers as it was told, and remembers what it was given."""

    answers: list[Any]
    given: list[list[Any]] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The next answer."""
        self.given.append(list(llm_request.contents))
        part = self.answers.pop(0)
        part = types.Part(text=part) if isinstance(part, str) else part
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def call_of(name: str, **arguments: Any) -> types.Part:
    """A call of the model."""
    return types.Part(function_call=types.FunctionCall(id=f"call-{name}", name=name, args=arguments))


def remember(fact: str, tool_context: ToolContext) -> str:
    """Remembers a fact."""
    for prefix in ("", "user:", "app:", "temp:"):
        tool_context.state[f"{prefix}fact"] = fact
    return "remembered"


async def ask(runner: Runner, text: str, session_id: str = "s1", **config: Any) -> list[Event]:
    """The events of a turn."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    run_config = RunConfig(**config)
    return [
        each
        async for each in runner.run_async(
            user_id="ann", session_id=session_id, new_message=message, run_config=run_config
        )
    ]


def roles(contents: list[Any]) -> list[tuple[str, str]]:
    """Who says what."""
    return [
        (each.role, "call" if part.function_call else "result" if part.function_response else part.text)
        for each in contents
        for part in each.parts
    ]


class TestUnderTheRunner:
    """ADK's runner, with a model that answers by a script."""

    async def test_a_conversation_goes_on_in_another_process(self, open_store: StoreOpener) -> None:
        """The model is given all that was said and done, and the state is there."""
        async with open_store() as store:
            service = HelixSessionService(store)
            model = Scripted(model="m", answers=[call_of("remember", fact="blue"), "noted"])
            agent = LlmAgent(name="a", model=model, tools=[remember], output_key="answer")
            async with Runner(app_name="shop", agent=agent, session_service=service) as runner:
                await service.create_session(**S1)
                await ask(runner, "I like blue")
        async with open_store() as store:
            service, model = HelixSessionService(store), Scripted(model="m", answers=["blue"])
            agent = LlmAgent(name="a", model=model, tools=[remember], output_key="answer")
            async with Runner(app_name="shop", agent=agent, session_service=service) as runner:
                await ask(runner, "what do I like?")
            assert roles(model.given[0]) == [
                ("user", "I like blue"),
                ("model", "call"),
                ("user", "result"),
                ("model", "noted"),
                ("user", "what do I like?"),
            ]
            found = await service.get_session(**S1)
            assert found is not None
            kept = {"fact": "blue", "user:fact": "blue", "app:fact": "blue", "answer": "blue"}
            assert found.state == kept

    async def test_a_run_is_given_as_many_events_as_its_settings_say(
        self, service: HelixSessionService
    ) -> None:
        """And its own are appended all the same."""
        model = Scripted(model="m", answers=[f"answer {n}" for n in range(4)])
        runner = Runner(app_name="shop", agent=LlmAgent(name="a", model=model), session_service=service)
        await service.create_session(**S1)
        for number in range(3):
            await ask(runner, f"question {number}")
        few = GetSessionConfig(num_recent_events=2)
        await ask(runner, "question 3", get_session_config=few)
        assert [text for _, text in roles(model.given[3])] == ["question 2", "answer 2", "question 3"]
        found = await service.get_session(**S1)
        assert found is not None
        assert len(found.events) == 8

    @pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
    async def test_agents_side_by_side(self, service: HelixSessionService) -> None:
        """All their events are kept."""
        agents = [
            LlmAgent(name=f"a{n}", model=Scripted(model="m", answers=[f"from {n}"]), output_key=f"k{n}")
            for n in range(5)
        ]
        runner = Runner(
            app_name="shop", agent=ParallelAgent(name="all", sub_agents=agents), session_service=service
        )
        await service.create_session(**S1)
        await ask(runner, "go")
        found = await service.get_session(**S1)
        assert found is not None
        assert {key: found.state[key] for key in found.state if key.startswith("k")} == {
            f"k{n}": f"from {n}" for n in range(5)
        }

    async def test_a_turn_that_was_overtaken_is_told_so(self, service: HelixSessionService) -> None:
        """A turn into which another one came, behind its question, ends with an error; the other stands."""
        other = Runner(
            app_name="shop",
            agent=LlmAgent(name="a", model=Scripted(model="m", answers=["first"])),
            session_service=service,
        )

        async def overtake(**_: Any) -> None:
            await ask(other, "quick")

        agent = LlmAgent(
            name="a", model=Scripted(model="m", answers=["late"]), before_model_callback=overtake
        )
        await service.create_session(**S1)
        with pytest.raises(StaleSessionError):
            await ask(Runner(app_name="shop", agent=agent, session_service=service), "slow")
        found = await service.get_session(**S1)
        assert found is not None
        kept = [each.content.parts[0].text for each in found.events if each.content and each.content.parts]
        assert kept == ["slow", "quick", "first"]

    async def test_a_turn_is_taken_back(self, service: HelixSessionService) -> None:
        """By ADK's rewind: the model is not given it any more, and the state is as before."""
        first, second = call_of("remember", fact="blue"), call_of("remember", fact="red")
        model = Scripted(model="m", answers=[first, "one", second, "two", "three"])
        runner = Runner(
            app_name="shop", agent=LlmAgent(name="a", model=model, tools=[remember]), session_service=service
        )
        await service.create_session(**S1)
        await ask(runner, "first")
        events = await ask(runner, "second")
        await runner.rewind_async(
            user_id="ann", session_id="s1", rewind_before_invocation_id=events[0].invocation_id
        )
        found = await service.get_session(**S1)
        assert found is not None
        assert found.state["fact"] == "blue"
        await ask(runner, "third")
        assert [text for _, text in roles(model.given[4])] == ["first", "call", "result", "one", "third"]


@pytest.fixture
async def files(open_backends: BackendsOpener) -> AsyncIterator[HelixArtifactService]:
    """The artifact service over empty records."""
    async with open_backends() as backends:
        yield HelixArtifactService(backends.records)


def text_of(text: str) -> types.Part:
    """A file with a text."""
    return types.Part(text=text)


class TestArtifacts:
    """Files: what ADK's own tests ask for, and what they do not."""

    async def test_a_version_comes_back_as_it_was(self, files: HelixArtifactService) -> None:
        """By its number, or the newest one; bytes and text, and what is known of them."""
        parts = [
            types.Part.from_bytes(data=bytes(range(256)), mime_type="image/png"),
            text_of("\x00\ud800 é"),
            types.Part(file_data=types.FileData(file_uri="gs://bucket/object", mime_type="text/csv")),
        ]
        assert await files.load_artifact(**S1, filename="a/b.png") is None
        for number, part in enumerate(parts):
            assert (
                await files.save_artifact(
                    **S1, filename="a/b.png", artifact=part, custom_metadata={"n": number}
                )
                == number
            )
            assert await files.load_artifact(**S1, filename="a/b.png") == part
        found = [await files.load_artifact(**S1, filename="a/b.png", version=n) for n in (0, 1, 2, 3, -1)]
        assert found == [*parts, None, None]
        assert await files.list_versions(**S1, filename="a/b.png") == [0, 1, 2]
        known = await files.list_artifact_versions(**S1, filename="a/b.png")
        assert [(each.version, each.mime_type, each.custom_metadata) for each in known] == [
            (0, "image/png", {"n": 0}),
            (1, "text/plain", {"n": 1}),
            (2, "text/csv", {"n": 2}),
        ]
        assert known[0].canonical_uri.startswith("artifact://apps/shop/users/ann/sessions/s1/")
        assert await files.get_artifact_version(**S1, filename="a/b.png") == known[2]
        assert await files.get_artifact_version(**S1, filename="a/b.png", version=0) == known[0]
        assert await files.get_artifact_version(**S1, filename="a/b.png", version=9) is None

    async def test_a_file_larger_than_one_record(self, files: HelixArtifactService) -> None:
        """It is kept in pieces, which nobody sees."""
        part = types.Part.from_bytes(data=b"0123456789abcdef" * 2**20, mime_type="video/mp4")
        await files.save_artifact(**S1, filename="v", artifact=part)
        assert await files.load_artifact(**S1, filename="v") == part

    async def test_a_file_that_is_too_large_is_refused(self, files: HelixArtifactService) -> None:
        """Before anything is stored."""
        part = types.Part.from_bytes(data=bytes(MAX_ARTIFACT), mime_type="video/mp4")
        with pytest.raises(TooLargeError, match="at most"):
            await files.save_artifact(**S1, filename="v", artifact=part)
        assert await files.list_artifact_keys(**S1) == []

    async def test_files_of_a_session_and_of_its_user(self, files: HelixArtifactService) -> None:
        """A session lists both; without a session there are those of the user."""
        other: Any = {**APP, "session_id": "s2"}
        await files.save_artifact(**S1, filename="own", artifact=text_of("own"))
        await files.save_artifact(**S1, filename="doc", artifact=text_of("own doc"))
        await files.save_artifact(**S1, filename="user:doc", artifact=text_of("shared"))
        await files.save_artifact(**APP, filename="bare", artifact={"text": "shared too"})
        await files.save_artifact(app_name="shop", user_id="bob", filename="his", artifact=text_of("x"))
        assert await files.list_artifact_keys(**S1) == ["doc", "own", "user:bare", "user:doc"]
        assert await files.list_artifact_keys(**other) == ["user:bare", "user:doc"]
        assert await files.list_artifact_keys(**APP) == ["user:bare", "user:doc"]
        assert await files.load_artifact(**other, filename="user:doc") == text_of("shared")
        assert await files.load_artifact(**APP, filename="bare") == text_of("shared too")
        assert await files.load_artifact(**S1, filename="doc") == text_of("own doc")
        assert await files.load_artifact(**other, filename="own") is None

    async def test_a_file_is_deleted_with_all_versions(self, files: HelixArtifactService) -> None:
        """And no other; one that is not there is deleted without a word."""
        for name in ("doc", "doc/nested", "doc"):
            await files.save_artifact(**S1, filename=name, artifact=text_of(name))
        await files.delete_artifact(**S1, filename="doc")
        await files.delete_artifact(**S1, filename="another")
        await files.delete_artifact(**APP, filename="another")
        assert await files.list_artifact_keys(**S1) == ["doc/nested"]
        assert await files.list_versions(**S1, filename="doc") == []
        assert await files.load_artifact(**S1, filename="doc") is None
        assert await files.save_artifact(**S1, filename="doc", artifact=text_of("new")) == 0

    async def test_versions_that_are_saved_at_once_are_all_kept(self, open_backends: BackendsOpener) -> None:
        """From two processes, each under a number of its own."""
        async with open_backends() as one, open_backends() as two:
            services = [HelixArtifactService(each.records) for each in (one, two)]
            numbers = await asyncio.gather(
                *(
                    services[n % 2].save_artifact(**S1, filename="f", artifact=text_of(str(n)))
                    for n in range(12)
                )
            )
            assert sorted(numbers) == list(range(12))
            loaded = [await services[0].load_artifact(**S1, filename="f", version=n) for n in numbers]
            assert loaded == [text_of(str(n)) for n in range(12)]

    async def test_a_version_whose_answer_was_lost_stands_once(self, open_backends: BackendsOpener) -> None:
        """The service asks again by itself."""
        async with open_backends() as backends:
            records: Any = Forgetful(backends.records, "write")
            files = HelixArtifactService(records)
            assert await files.save_artifact(**S1, filename="f", artifact=text_of("a")) == 0
            assert await files.list_versions(**S1, filename="f") == [0]

    async def test_a_reference_leads_to_its_version(self, files: HelixArtifactService) -> None:
        """Within its application, user and session, and not in circles."""

        def reference(name: str, version: int = 0, user: str = "ann", session: str = "s1") -> types.Part:
            uri = artifact_util.get_artifact_uri("shop", user, name, version, session)
            return types.Part(file_data=types.FileData(file_uri=uri, mime_type="text/plain"))

        await files.save_artifact(**S1, filename="doc", artifact=text_of("old"))
        await files.save_artifact(**S1, filename="doc", artifact=text_of("new"))
        await files.save_artifact(**APP, session_id="s1\n", filename="link", artifact=reference("doc"))
        assert await files.load_artifact(**S1, filename="link") == text_of("old")
        for part in (reference("doc", user="bob"), reference("doc", session="s2")):
            with pytest.raises(InputValidationError, match="scope"):
                await files.save_artifact(**S1, filename="link", artifact=part)
        await files.save_artifact(**S1, filename="ring", artifact=reference("ring"))
        with pytest.raises(InputValidationError, match="recursion"):
            await files.load_artifact(**S1, filename="ring")

    async def test_nothing_is_no_file(self, files: HelixArtifactService) -> None:
        """An error that says so."""
        with pytest.raises(InputValidationError, match="Not supported"):
            await files.save_artifact(**S1, filename="f", artifact=types.Part())

    async def test_the_files_of_a_session_go_with_it(self, open_backends: BackendsOpener) -> None:
        """And a tool that is late brings none back; those of the user stay; a new session begins without."""
        async with open_backends() as backends:
            sessions, files = HelixSessionService(backends.sessions), HelixArtifactService(backends.records)
            await sessions.create_session(**S1)
            await files.save_artifact(**S1, filename="f", artifact=text_of("a"))
            await files.save_artifact(**S1, filename="user:f", artifact=text_of("b"))
            await sessions.delete_session(**S1)
            with pytest.raises(HelixSessionNotFoundError, match="was deleted"):
                await files.save_artifact(**S1, filename="f", artifact=text_of("late"))
            assert await files.list_artifact_keys(**S1) == ["user:f"]
            await sessions.create_session(**S1)
            assert await files.save_artifact(**S1, filename="f", artifact=text_of("c")) == 0
            assert (await sessions.list_sessions(**APP)).sessions[0].id == "s1"

    async def test_files_under_the_runner(self, open_backends: BackendsOpener) -> None:
        """A tool saves and loads one; a rewind takes its newest version back."""

        async def draw(text: str, tool_context: ToolContext) -> str:
            """Draws."""
            version = await tool_context.save_artifact("picture", text_of(text))
            found = await tool_context.load_artifact("picture")
            return f"{version}: {found.text if found else None}"

        async with open_backends() as backends:
            sessions, files = HelixSessionService(backends.sessions), HelixArtifactService(backends.records)
            answers = [call_of("draw", text="cat"), "one", call_of("draw", text="dog"), "two"]
            runner = Runner(
                app_name="shop",
                agent=LlmAgent(name="a", model=Scripted(model="m", answers=answers), tools=[draw]),
                session_service=sessions,
                artifact_service=files,
            )
            await sessions.create_session(**S1)
            await ask(runner, "a cat")
            events = await ask(runner, "a dog")
            assert await files.load_artifact(**S1, filename="picture") == text_of("dog")
            await runner.rewind_async(
                user_id="ann", session_id="s1", rewind_before_invocation_id=events[0].invocation_id
            )
            assert await files.load_artifact(**S1, filename="picture") == text_of("cat")
            await runner.rewind_async(
                user_id="ann",
                session_id="s1",
                rewind_before_invocation_id=(await reloaded_first(sessions)).invocation_id,
            )
            assert await files.load_artifact(**S1, filename="picture") is None


async def reloaded_first(service: HelixSessionService) -> Event:
    """The first event of the session."""
    found = await service.get_session(**S1)
    assert found is not None
    first: Event = found.events[0]
    return first


class TestRedisLosesEvents:
    """States are in PostgreSQL, threads in Redis with an archive: a wipe loses events, and no state."""

    @pytest.mark.parametrize("archived", [0, 2, 3])
    async def test_the_session_goes_on_behind_what_was_archived(
        self, apart: Production, archived: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What is lost is said; whoever has read it before is told to read again."""
        service = HelixSessionService(apart.store())
        session = await service.create_session(**S1)
        for number in range(5):
            await service.append_event(session, changed(f"e{number}", n=number))
            if number == archived - 1:
                await apart.sweep()
        await apart.wipe()
        after = HelixSessionService(apart.store())
        with pytest.raises(StaleSessionError):
            await after.append_event(session, changed("e5", n=5))
        found = await reloaded(after, session)
        assert [each.id for each in found.events] == [f"e{number}" for number in range(archived)]
        assert found.state == {"n": 4}
        assert f"had 5 events and has {archived}" in caplog.text
        for name in ("e6", "e7"):
            await after.append_event(found, changed(name, n=name))
        again = await reloaded(HelixSessionService(apart.store()), session)
        assert [each.id for each in again.events][archived:] == ["e6", "e7"]
        assert again.state == {"n": "e7"}

    async def test_a_reader_of_no_events_goes_on_as_well(self, apart: Production) -> None:
        """It does not see that some are missing before it appends."""
        service = HelixSessionService(apart.store())
        session = await service.create_session(**S1)
        await service.append_event(session, changed("e0", n=0))
        await apart.wipe()
        after = HelixSessionService(apart.store())
        with pytest.raises(StaleSessionError):
            await after.append_event(await reloaded(after, session, num_recent_events=0), changed("e1", n=1))
        await after.append_event(await reloaded(after, session, num_recent_events=0), changed("e1", n=1))
        assert [each.id for each in (await reloaded(after, session)).events] == ["e1"]


def test_the_program_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its model; a second run goes on with the conversation."""
    program = dict(titled(ROOT / "docs" / "frameworks" / "google-adk.md", "python"))["orders.py"]
    model = Scripted(model="m", answers=["On its way.", "As I said."])

    def make_agent(**named: Any) -> LlmAgent:
        return LlmAgent(**named | {"model": model})

    monkeypatch.setattr("google.adk.agents.LlmAgent", make_agent)
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    printed: list[Any] = []
    for _ in range(2):
        exec(compile(program, "orders.py", "exec"), {"__name__": "__main__", "print": printed.append})
    assert printed == ["On its way.", "As I said."]
    assert [role for role, _ in roles(model.given[1])] == ["user", "model", "user"]


def test_the_example_runs_as_its_page_says(tmp_path: Path) -> None:
    """Alone, with its own model."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
    ran = subprocess.run(
        [sys.executable, "examples/google_adk_sessions/google_adk_sessions.py"],
        cwd=ROOT,
        env=environment | {"HELIX_DATA_DIRECTORY": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines[:2]] == [
        "Where is my order? NL-20417 is on its way (slip.txt, version 0).",
        "How often have I asked? You have asked me 2 times.",
    ]
    assert len({line.partition(":")[0] for line in lines[:2]}) == 2
    assert lines[2:] == [
        "6 events, state {'order': 'NL-20417', 'user:orders_seen': 1}",
        "a writer that had not seen the last event was refused",
        "7 events: one more, though it was appended twice",
    ]
