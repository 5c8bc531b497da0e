"""A conversation that goes on while somebody looks: server-sent events with pieces of the page.

Each event carries ``<hx-partial>`` elements, which the page's script puts in their places.  Its id is the
place in the thread up to which finished turns are on the page: a browser that connects again gives it back,
and is sent the turns behind it and the whole of what is under way.  So nothing is lost or doubled, whatever
the connection missed.  Where the thread has other messages there by now, the page is told to load anew.
"""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Sequence
from typing import Final, Literal, cast

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.errors import HelixError, NotFoundError, StreamTruncatedError
from helix_temporal.inspector import labels, marks
from helix_temporal.inspector.live_looks import LiveLooks
from helix_temporal.inspector.live_turn import LiveChanges, LiveQuestion, LiveRun, LiveTurn
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.conversation import TURNS
from helix_temporal.inspector.rendering import read_clock, render_macro
from helix_temporal.inspector.shown_place import ShownPlace, find_place, parse_place
from helix_temporal.models.streams import StoredChunk
from helix_temporal.views import SessionViews, words
from helix_temporal.views.models import ConversationPage, ConversationTurn, SessionView, TurnAttempt
from helix_temporal.web.event_stream import RETRY_MS, EventStream

WINDOW: Final = 0.03
"""Seconds for which chunks are gathered after an event."""
MAX_BATCH: Final = 500
MAX_AGE: Final = 900.0
"""Seconds after which a stream ends, so that the browser connects again and its rights are looked at anew."""
MAX_STREAMS: Final = 500
MAX_STREAMS_OF_VIEWER: Final = 20
_TOLD_TIMES: Final = re.compile(r"(<time [^>]*>)[^<]*")
"""The words of a time, such as "2 s ago": the page's script keeps them right."""
NEW_TURNS: Final = 10
"""Turns that are added to a page at once; who is further behind is told to reload."""


class LiveStreams:
    """All streams of an inspector: how many there are, and their end."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._ends: set[asyncio.Event] = set()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._ends)

    def close(self) -> None:
        """End all of them, as the server ends."""
        for end in self._ends:
            end.set()

    async def follow_session(self, request: Request, page: PageRequest) -> Response:
        """``GET …/live?shown=PLACE``."""
        session_id: str = request.path_params["session_id"]
        seen = request.headers.get("last-event-id") or request.query_params.get("shown") or "0"
        shown = parse_place(seen)
        is_whole = not request.query_params.get("unread")
        await page.views.get_session(session_id)  # is there, and the viewer may see it
        viewer = page.viewer.name
        if self._has_enough(viewer):
            raise HTTPException(429, headers={"Retry-After": "5"})
        end = asyncio.Event()
        self._open[viewer] += 1
        self._ends.add(end)

        def leave() -> None:
            self._open[viewer] -= 1
            self._open += Counter()  # forgets viewers without a stream
            self._ends.discard(end)

        renderer = LiveRenderer(session_id, page)
        conversation = LiveConversation(page.views, session_id, shown, renderer, is_whole=is_whole)
        return EventStream(conversation.follow(end), on_end=leave)

    def _has_enough(self, viewer: str) -> bool:
        """Whether this viewer gets no more streams; without a name it is not known whose the others are."""
        of_viewer = self._open[viewer] if viewer else 0
        return self.count >= MAX_STREAMS or of_viewer >= MAX_STREAMS_OF_VIEWER


class LiveConversation:
    """One session for one page.

    Args:
        views: What the viewer may see.
        session_id: Whose conversation it is.
        shown: Place in the thread up to which finished turns are on the page.
        renderer: Makes HTML.
        is_whole: The page has all that it would have if every store had answered.
    """

    def __init__(
        self,
        views: SessionViews,
        session_id: str,
        shown: ShownPlace,
        renderer: "LiveRenderer",
        *,
        is_whole: bool = True,
    ) -> None:
        self._views, self._session_id, self._shown = views, session_id, shown
        self._is_whole = is_whole
        self._renderer, self._looks = renderer, LiveLooks()
        self._has_open_turn = self._is_unread = False
        self._session: SessionView | None = None
        self._turn = LiveTurn()

    async def follow(self, end: asyncio.Event) -> AsyncGenerator[bytes]:
        """Frames until the session is deleted, the page must be loaded anew, or ``end`` is set."""
        yield b"retry: %d\n\n" % RETRY_MS
        try:
            after = await self._views.find_live_place(self._session_id)
            self._turn = begin_live_turn(await self._views.get_session(self._session_id))
            self._looks.begin()
            yield self._frame(Markup("").join(await self._read_stores()))
            chunks = self._views.follow_session(self._session_id, after)
            async with contextlib.aclosing(_gather(chunks, end, self._wait_time)) as batches:
                async for batch in batches:
                    changes = self._take_batch(batch)
                    if changes.resync is not None:
                        yield self._closing("resync")
                        return
                    pieces = await self._show_batch(changes)
                    yield self._frame(Markup("").join(pieces)) if any(pieces) else b": still here\n\n"
            if not end.is_set():
                await self._views.load_state(self._session_id)
                yield self._closing("resync")  # another session has its id
        except ReloadError as error:
            yield self._closing(error.why)
        except StreamTruncatedError:
            yield self._closing("resync")
        except NotFoundError:
            yield self._closing("deleted")
        except HelixError as error:
            yield self._frame(self._renderer.show_problem(error))

    def _wait_time(self) -> float:
        return self._looks.wait_time(self._turn.status == "running")

    def _take_batch(self, batch: Sequence[StoredChunk]) -> LiveChanges:
        """What these chunks change; none are a sign that nothing has come for a while."""
        for stored in batch:
            self._turn.take_chunk(stored.chunk)
        if batch and self._looks.silence.end((read_clock() - batch[-1].written_at) / 1000):
            self._turn.show_status_again()
        return self._turn.pop_changes()

    async def _show_batch(self, changes: LiveChanges) -> list[Markup]:
        """What is new on the page: from the stream, and from the stores where they are looked at."""
        if changes.status is not None or changes.run is not None:
            self._looks.begin()
        pieces = [*self._renderer.show_changes(changes), self._show_mark()]
        running = self._turn.status == "running"
        if changes.stored or self._looks.take_due(running):
            pieces += await self._read_stores()
        if running and self._turn.status == "running":
            pieces.append(self._renderer.show_silence(self._looks.silence.tell()))
        return pieces

    async def _read_stores(self) -> list[Markup]:
        """What the thread and the session have now."""
        thread = await self.read_thread()
        session = self._session = await self._views.get_session(self._session_id)
        self._looks.is_unread = self._is_unread or session.problem is not None
        if self._looks.are_chunks_missing:
            self._turn.correct_status(words.find_progress(session))
        # The question of a turn stands in the thread with its first step.
        question = None if self._has_open_turn else self._turn.question
        return [
            thread,
            self._renderer.show_question(question),
            self._renderer.show_facts(session),
            *self._renderer.show_changes(self._turn.pop_changes()),
            self._show_mark(),
        ]

    def _show_mark(self) -> Markup:
        """The word beside the title; what the stream tells of the turn is newer than what the stores do."""
        if self._session is None:
            return Markup("")
        return self._renderer.show_mark(marks.mark_followed(self._session, self._turn.status))

    async def read_thread(self) -> Markup:
        """The turns that have ended since, and what is not told for good yet, as far as it is stored."""
        limit = NEW_TURNS if self._is_whole else TURNS
        newest = await self._views.read_turns(self._session_id, limit=limit)
        self._is_unread = newest.problem is not None
        if self._is_unread and not newest.turns:
            # Its store is away: what is on the page stays there.
            return self._renderer.show_problem_of_thread(newest.problem)
        await self._check_shown(newest)
        under_way = labels.list_open(newest)
        self._turn.follow_thread(under_way)
        try:
            ended = await self._list_ended(newest, {each.start for each in under_way})
        except _UnreadTurnsError as error:
            # Those behind them wait until they can be read: what is on the page has no gap.
            self._is_unread = True
            return self._renderer.show_problem_of_thread(str(error))
        if ended:
            self._shown = await find_place(self._views, newest, ended[-1].stop)
        self._has_open_turn = any(each.unfinished for each in under_way)
        lost = [each for each in labels.list_lost(newest) if each.start >= self._shown.position]
        return self._renderer.show_turns(ended, under_way, lost, newest.problem)

    async def _check_shown(self, newest: ConversationPage) -> None:
        """Compare what is on the page with the thread.

        Raises:
            ReloadError: The thread has another message there, or ends before it, or is another session's.  Or
                what could not be read for the page can be read now.
        """
        shown = self._shown
        if not self._is_whole and not self._is_unread:
            raise ReloadError("readable")
        if newest.head is not None and newest.head < shown.position:
            raise ReloadError
        found = await find_place(self._views, newest, shown.position)
        is_known = shown.name if self._is_unread else shown != ShownPlace(0)
        if found.name and found != shown and is_known:
            raise ReloadError

    async def _list_ended(
        self, newest: ConversationPage, under_way: Container[int]
    ) -> list[ConversationTurn]:
        """The turns that have ended since, each by its last part: a page that is loaded anew has no more.

        Args:
            newest: The newest turns.
            under_way: Where those begin that are not told for good yet.

        Raises:
            ReloadError: They are more than a page is given at once.
            _UnreadTurnsError: Turns between the page's and these cannot be read.
        """
        page, ended = newest, list[ConversationTurn]()
        while True:
            ended[:0] = [
                each
                for each in page.turns
                if each.start not in under_way and each.part_of_turn.ends and each.stop > self._shown.position
            ]
            if len(ended) > NEW_TURNS:
                raise ReloadError
            before = min(page.before or 0, page.committed or 0)
            if page.problem is not None and (not page.turns or page.turns[0].start > self._shown.position):
                raise _UnreadTurnsError(page.problem)
            if before <= self._shown.position:
                return ended
            page = await self._views.read_turns(self._session_id, before=before, limit=NEW_TURNS)

    def _frame(self, html: Markup) -> bytes:
        return live_frame(html, self._shown)

    def _closing(self, why: str) -> bytes:
        return self._frame(self._renderer.show_end(why)) + b"event: done\ndata: done\n\n"


def begin_live_turn(session: SessionView) -> LiveTurn:
    """What is known of the turn under way before the first chunk."""
    return LiveTurn(
        status=words.find_progress(session),
        run=LiveRun(session.live_run.run_id if session.live_run else ""),
    )


class _UnreadTurnsError(Exception):
    """A store is away, or damage, between what is on the page and the newest turns; its text says so."""


class ReloadError(Exception):
    """What is on the page is not what is in the thread.

    Attributes:
        why: ``resync``, or ``readable``: what could not be read for the page can be read now.
    """

    def __init__(self, why: Literal["resync", "readable"] = "resync") -> None:
        super().__init__(why)
        self.why = why


class LiveRenderer:
    """Pieces of HTML by the macros of ``live.html``; what stands on the page already is empty."""

    def __init__(self, session_id: str, page: PageRequest) -> None:
        self._session_id, self._page = session_id, page
        self._shown: dict[str, str] = {}

    def show_changes(self, changes: LiveChanges) -> list[Markup]:
        """The pieces for what has changed, none if nothing has that is shown."""
        pieces = []
        if changes.cleared or changes.step is not None:
            pieces.append(self._render("step", changes.step))
        if changes.text:
            pieces.append(self._render("more_text", changes.text))
        if changes.thinking:
            pieces.append(self._render("more_thinking", changes.thinking))
        if changes.calls is not None:
            pieces.append(self._render("calls", changes.calls))
        if changes.run is not None:
            pieces.append(self._render("actions", self._session_id, changes.run.run_id))
        if changes.status is not None:
            pieces.append(self._render("status", changes.status))
        return pieces

    def show_turns(
        self,
        ended: Sequence[ConversationTurn],
        under_way: Sequence[ConversationTurn],
        lost: Sequence[TurnAttempt],
        problem: str | None,
    ) -> Markup:
        """Finished turns, to be added, the ones under way, and attempts behind them that left nothing."""
        pieces = [self._render_new("under_way", self._session_id, under_way)]
        if ended:
            pieces.append(self._render("ended", self._session_id, ended))
        pieces += [self._render_new("lost", lost), self.show_problem_of_thread(problem)]
        return Markup("").join(pieces)

    def show_problem_of_thread(self, problem: str | None) -> Markup:
        """Why not all of it can be read; it is taken away where all can."""
        return self._render_new("unread", problem)

    def show_question(self, question: LiveQuestion | None) -> Markup:
        """What the turn under way was begun with, while the thread doesn't have it."""
        return self._render_new("question", question)

    def show_facts(self, session: SessionView) -> Markup:
        """Sums, and whom the session waits for."""
        return self._render_new("facts", session)

    def show_mark(self, mark: marks.Mark) -> Markup:
        """What the session does, or its last status."""
        return self._render_new("session_mark", mark)

    def show_silence(self, seconds: int | None) -> Markup:
        """For how long nothing has come; nothing to show for None."""
        return Markup("") if seconds is None else self._render("silence", seconds)

    def show_end(self, why: str) -> Markup:
        """Why no more comes."""
        return self._render("end", why)

    def show_problem(self, error: HelixError) -> Markup:
        """What went wrong; the browser connects again."""
        return self._render("problem", str(error))

    def _render_new(self, macro: str, *arguments: object) -> Markup:
        """The piece, if it is another one than before: what is drawn anew loses what is typed into it."""
        piece = self._render(macro, *arguments)
        plain = _TOLD_TIMES.sub(r"\1", piece)
        if self._shown.get(macro) == plain:
            return Markup("")
        self._shown[macro] = plain
        return piece

    def _render(self, macro: str, *arguments: object) -> Markup:
        return render_macro("live.html", macro, *arguments, page=self._page)


def live_frame(html: str, shown: ShownPlace) -> bytes:
    """One event; its data may have line breaks, and a carriage return would end a line too."""
    lines = html.replace("\r\n", "\n").replace("\r", "&#13;").split("\n")
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {shown}\n{data}\n".encode(errors="replace")


async def _gather(
    chunks: AsyncIterator[StoredChunk],
    end: asyncio.Event,
    wait_time: Callable[[], float],
    *,
    window: float = WINDOW,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Sequence[StoredChunk]]:
    """Chunks as they come, at once after a silence and else what comes within a window.

    An empty batch comes when there was no chunk for ``wait_time()`` seconds.  A reader that doesn't take
    them lets the queue fill up: then no more are read from the store.
    """
    queue: asyncio.Queue[StoredChunk | None] = asyncio.Queue(MAX_BATCH)
    pump = asyncio.create_task(_fill(queue, chunks))
    ended = asyncio.create_task(end.wait())
    leave_at = clock() + MAX_AGE
    next_at = 0.0
    first: asyncio.Task[StoredChunk | None] | None = None
    try:
        while clock() < leave_at:
            first = first or asyncio.create_task(queue.get())
            await asyncio.wait({first, ended}, timeout=wait_time(), return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                if ended.done():
                    return
                yield ()
                continue
            await asyncio.sleep(max(0.0, next_at - clock()))
            batch, is_over = _drain(first.result(), queue)
            first = None
            if batch:
                yield batch
            if is_over:
                await pump  # raises what ended it
                return
            next_at = clock() + window
        end.set()
    finally:
        tasks = {task for task in (pump, ended, first) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _drain(
    first: StoredChunk | None, queue: "asyncio.Queue[StoredChunk | None]"
) -> tuple[list[StoredChunk], bool]:
    """What has come, and whether no more will."""
    batch: list[StoredChunk] = []
    each = first
    while each is not None:
        batch.append(each)
        if len(batch) >= MAX_BATCH or queue.empty():
            return batch, False
        each = queue.get_nowait()
    return batch, True


async def _fill(queue: "asyncio.Queue[StoredChunk | None]", chunks: AsyncIterator[StoredChunk]) -> None:
    try:
        async with contextlib.aclosing(cast("AsyncGenerator[StoredChunk]", chunks)) as source:
            async for each in source:
                await queue.put(each)
    except Exception:
        await queue.put(None)
        raise
    await queue.put(None)
