"""Made-up sessions of a shop's support, for looking at the pages: every kind of row that they can show."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from helix_temporal.errors import SessionNotFoundError
from helix_temporal.inspector.rendering import read_clock
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import (
    CheckpointList,
    CheckpointOverview,
    ContextPart,
    ConversationCall,
    ConversationMessage,
    ConversationPage,
    ConversationTurn,
    Difference,
    FoundCall,
    ModelCall,
    ModelContext,
    ScheduleFacts,
    ScheduleRun,
    SegmentPlace,
    SessionBranch,
    SessionList,
    SessionOverview,
    SessionView,
    StateAt,
    StateComparison,
    ThreadPlace,
    TokenSums,
    ToolSums,
    TurnAttempt,
    UsageSums,
    WaitingFor,
    WholeMessage,
)

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
ID = "order-4711/returns"


def _overview(session_id: str, title: str, ago: int, **given: Any) -> SessionOverview:
    now = read_clock()
    facts = {"agent": "support", "user_id": "maria.keller", "status": SessionStatus.ACTIVE, **given}
    return SessionOverview(
        session_id=session_id, title=title, created_at=now - ago - HOUR, updated_at=now - ago, **facts
    )


def list_overviews() -> tuple[SessionOverview, ...]:
    """Sessions of all states, newest change first."""
    return (
        _overview(
            ID, "Return of order 4711: two of five lamps are broken", 8 * SECOND,
            steps=31, tags=("vip", "returns"), metadata={"channel": "web", "order": 4711},
        ),
        _overview("chat-20931", "Where is my parcel?", 2 * MINUTE, user_id="jonas.b", steps=4, metadata={"channel": "app"}),
        _overview(
            "order-4711/returns/research-1", "Check warranty terms for LUX-20", 3 * MINUTE,
            agent="researcher", status=SessionStatus.COMPLETED, steps=7, parent_session_id=ID,
        ),
        _overview("chat-20930", "Change the delivery address of a running order", 14 * MINUTE, user_id="t.nakamura", status=SessionStatus.PAUSED, steps=9, tags=("address",)),
        _overview("invoice-88", "Invoice shows the wrong VAT rate", 41 * MINUTE, agent="billing", user_id="acme-gmbh", status=SessionStatus.FAILED, steps=12, tags=("vat",)),
        _overview("chat-20929", "Cancel my subscription", 2 * HOUR, user_id="lea_w", status=SessionStatus.COMPLETED, steps=6),
        _overview("chat-20927", "", 3 * HOUR, user_id="o.adeyemi", status=SessionStatus.INTERRUPTED, steps=3, metadata={"channel": "phone"}),
        _overview("nightly-2026-11-29", "Nightly stock report", 6 * HOUR, agent="reporter", user_id=None, status=SessionStatus.COMPLETED, steps=48, tags=("job",)),
        _overview("chat-20911", "Gift card was not accepted at checkout", 9 * HOUR, user_id="jonas.b", status=SessionStatus.COMPLETED, steps=8),
        _overview("chat-20904", "طلب استرداد ‮المبلغ", 26 * HOUR, user_id="salma", status=SessionStatus.COMPLETED, steps=11),
        _overview("chat-20899", "Two lamps flicker after the firmware update; which version should be installed?", 30 * HOUR, status=SessionStatus.COMPLETED, steps=22, tags=("firmware",)),
        _overview("chat-20871", "Wholesale price list for 2027", 3 * DAY, agent="sales", user_id="acme-gmbh", status=SessionStatus.ACTIVE, steps=2),
    )  # fmt: skip


def _usage(tokens: int, cost: str, calls: int = 14, failed: int = 1) -> UsageSums:
    return UsageSums(
        tokens=TokenSums(input=tokens, output=tokens // 9, cached=tokens * 6 // 10, reasoning=tokens // 30),
        model_calls=31,
        tool_calls=calls,
        failed_tool_calls=failed,
        sub_agent_calls=1,
        cost_usd=Decimal(cost),
        duration_ms=184_000,
        by_model={
            "claude-sonnet-4-5": TokenSums(input=tokens * 9 // 10, output=tokens // 10, cached=tokens // 2),
            "claude-haiku-4-5": TokenSums(input=tokens // 10, output=tokens // 90),
        },
        by_tool={
            "find_order": ToolSums(calls=6, failed=0, duration_ms=1830),
            "create_return_label": ToolSums(calls=3, failed=1, duration_ms=9120),
            "refund": ToolSums(calls=1, failed=0, duration_ms=0),
            "ask_researcher": ToolSums(calls=1, failed=0, duration_ms=48_300),
            "search_policy": ToolSums(calls=3, failed=0, duration_ms=2210),
        },
        custom={"labels": {"printed": Decimal(3)}},
        session_ids=(ID, "order-4711/returns/research-1"),
    )


def list_attempts() -> tuple[TurnAttempt, ...]:
    """Runs, newest first: one that waits, one discarded, one failed and finished ones."""
    now = read_clock()

    def attempt(turn: int, status: RunStatus, ago: int, took: int | None, **given: Any) -> TurnAttempt:
        return TurnAttempt(
            run_id=f"run-{turn:03}-{status.value[:4]}", turn=turn, status=status, steps=3,
            started_at=now - ago, ended_at=None if took is None else now - ago + took,
            workflow_id=f"helix/{ID}", workflow_run_id="0198c7f2-6c1e-7a51-9d3c-0d1d2c6a2f11",
            model_calls=tuple(
                ModelCall(model="claude-sonnet-4-5", step=step, at=now - ago + step * 900,
                          tokens=TokenSums(input=5200 + 340 * step, output=210, cached=4100),
                          cost_usd=Decimal("0.0121"), duration_ms=2140 + 100 * step)
                for step in (1, 2, 3)
            ),
            **given,
        )  # fmt: skip

    return (
        attempt(17, RunStatus.SUSPENDED_CLIENT_TOOL, 90 * SECOND, None, start=58),
        attempt(16, RunStatus.COMPLETED, 5 * MINUTE, 52_400, start=52),
        attempt(15, RunStatus.COMPLETED, 9 * MINUTE, 12_800, start=44),
        attempt(
            15, RunStatus.ABORTED, 10 * MINUTE, 8_300, start=44, kept=False,
            reason="the worker was stopped in the middle of a step",
        ),
        attempt(
            14, RunStatus.FAILED, 22 * MINUTE, 31_000, start=40,
            error=ErrorInfo(type="ModelOverloadedError", message="529 after 3 attempts over 31 s"),
        ),
        attempt(13, RunStatus.COMPLETED, 25 * MINUTE, 4_100, start=36),
    )  # fmt: skip


def _call(name: str, position: int, at: int, arguments: Any, result: Any = None, **given: Any) -> ConversationCall:
    return ConversationCall(
        call_id=f"call_{position}_{at}", name=name, position=position, at=at, arguments=arguments, result=result, **given
    )


def _message(position: int, role: Any, text: str, **given: Any) -> ConversationMessage:
    return ConversationMessage(
        message_id=f"m-{position:05}", position=position, role=role, text=text, size=len(text) + 180, **given
    )


def list_waiting() -> tuple[WaitingFor, ...]:
    """An approval that is asked for."""
    now = read_clock()
    return (
        WaitingFor(
            call_id="call_59_0", tool="refund", kind="approval",
            arguments={"order": "4711", "amount": "79.80", "currency": "EUR", "reason": "2 lamps broken on arrival"},
            since=now - 80 * SECOND, until=now + 22 * HOUR, run_id="run-017-susp", turn=17,
        ),
    )  # fmt: skip


def list_turns() -> tuple[ConversationTurn, ...]:
    """Turns with tools, a failed call, a discarded attempt, a sub-agent, damage, and one that waits."""
    attempts = list_attempts()
    order = {"id": "4711", "placed": "2026-11-21", "lines": [{"sku": "LUX-20", "count": 5, "price": "39.90"}], "carrier": "DHL", "delivered": "2026-11-27T10:14:00Z"}
    return (
        ConversationTurn(
            number=14, start=40, stop=42, attempts=(attempts[4],), duration_ms=31_000, tokens=TokenSums(input=5400),
            messages=(_message(40, "user", "Are you still there? I sent the photos."),),
        ),
        ConversationTurn(
            number=15, start=44, stop=52, attempts=(attempts[3], attempts[2]), duration_ms=12_800,
            tokens=TokenSums(input=17_340, output=812, cached=12_300), cost_usd=Decimal("0.0363"), tool_calls=2, failed_calls=1,
            messages=(
                _message(44, "user", "Two of the five lamps arrived broken. I would like to send those two back and keep the others."),
                _message(
                    45, "assistant", "I am sorry about that. Let me look at the order first.", step=1,
                    thinking="The customer wants a partial return. I need the order lines, then a label for two pieces of LUX-20.",
                    calls=(
                        _call("find_order", 45, 0, {"order": "4711"}, order, duration_ms=312),
                        _call(
                            "create_return_label", 45, 1, {"order": "4711", "sku": "LUX-20", "count": 2},
                            status="failed", duration_ms=5040,
                            error="CarrierError: DHL answered 422: 'pickup_date' 2026-11-29 is a Sunday; the next possible one is 2026-11-30",
                        ),
                    ),
                ),
                _message(
                    48, "assistant", "", step=2,
                    calls=(_call("create_return_label", 48, 0, {"order": "4711", "sku": "LUX-20", "count": 2, "pickup_date": "2026-11-30"}, {"label": "RL-99120", "pdf": "https://shop.example/labels/RL-99120.pdf", "pickup": "2026-11-30"}, duration_ms=1980),),
                ),
                _message(
                    50, "assistant",
                    "Your return label is ready: **RL-99120**. The carrier picks the parcel up on **Monday, 30 November**.\n\n"
                    "Please put into the parcel:\n\n- both broken lamps, with their bulbs\n- the printed label, on the outside\n- order number `4711` on a slip of paper\n\n"
                    "As soon as it has been scanned I will ask for the refund of 79.80 €.",
                    step=3, tokens=TokenSums(input=6220, output=204),
                ),
            ),
        ),
        ConversationTurn(
            number=16, start=52, stop=58, attempts=(attempts[1],), duration_ms=52_400,
            tokens=TokenSums(input=24_120, output=1_406, cached=18_000), cost_usd=Decimal("0.0912"), tool_calls=1,
            messages=(
                _message(52, "user", "Is there a warranty on the three I keep? They flicker sometimes."),
                _message(
                    53, "assistant", "", step=1,
                    calls=(
                        _call(
                            "ask_researcher", 53, 0, {"question": "Warranty terms of LUX-20, and known faults: flicker"},
                            "LUX-20 has a warranty of 36 months. Firmware 2.1 is known to flicker below 20 % brightness; 2.2 repairs it.",
                            duration_ms=48_300, sub_session_id="order-4711/returns/research-1",
                        ),
                    ),
                ),
                _message(
                    55, "assistant",
                    "Yes: **36 months**, until November 2029. The flicker is a known fault of firmware 2.1 below 20 % brightness.\n\n"
                    "```\n1. Hold the button for 8 seconds until the lamp blinks twice.\n2. Open the app, choose “Update”, then version 2.2.\n3. Leave the lamp switched on for a minute.\n```\n\nIf it still flickers afterwards, we replace it.",
                    step=2,
                ),
            ),
        ),
        ConversationTurn(
            number=17, start=58, stop=60, attempts=(attempts[0],), unfinished=True, tool_calls=1,
            tokens=TokenSums(input=8_010, output=140),
            messages=(
                _message(58, "user", "The parcel was scanned this morning. When do I get my money back?"),
                _message(
                    59, "assistant", "I have asked a colleague to confirm the refund of 79.80 €.", step=1,
                    calls=(_call("refund", 59, 0, list_waiting()[0].arguments, status="waiting", waiting=list_waiting()[0]),),
                ),
            ),
        ),
    )  # fmt: skip


def _segments(count: int = 9) -> tuple[SegmentPlace, ...]:
    return tuple(
        SegmentPlace(name=f"00000{n:03}-8f{n:02}c.seg", first=n * 6, stop=n * 6 + 6, bytes=4_820 + 613 * n)
        for n in range(count)
    )


def make_place() -> ThreadPlace:
    """A hot thread whose archive lags behind."""
    return ThreadPlace(
        thread_id=ID, messages=58, unfinished=2, bytes=61_204, hot=True, archived=54, unarchived=4, epoch=1764397832000123,
        opened_at=read_clock() - 25 * MINUTE, owner="worker-7f9c/0198c7f2", slice_version=17, slice_bytes=2_310,
        adapter="anthropic", manifest_version=12, segments=_segments(), objects=11, object_bytes=66_912,
    )  # fmt: skip


@dataclass
class SceneViews:
    """Answers as `helix_temporal.views.SessionViews` does, with what is made up here."""

    calls: list[str] = field(default_factory=list)

    async def list_sessions(self, wanted: SessionFilter, *, limit: int, cursor: str | None = None) -> SessionList:
        """All, or those that wait."""
        if wanted.need == "waiting":
            return SessionList(sessions=list_overviews()[:1])
        if wanted.user_id == "nobody":
            return SessionList()
        return SessionList(sessions=list_overviews(), next_cursor="next")

    async def get_session(self, session_id: str) -> SessionView:
        """One of them."""
        overview = next((each for each in list_overviews() if each.session_id == session_id), None)
        if overview is None:
            raise SessionNotFoundError(f"session {session_id!r} is not there")
        waits = session_id == ID
        return SessionView(
            overview=overview, mode="persistent", version=17, thread_id=session_id, messages=58, turns=17,
            live_run=list_attempts()[0] if waits else None, waiting=list_waiting() if waits else (),
            children=("order-4711/returns/research-1",) if waits else (), usage=_usage(184_200, "0.8112"), place=make_place(),
        )  # fmt: skip

    async def get_usage(self, session_id: str, *, descendants: bool = False) -> UsageSums:
        """Sums."""
        return _usage(231_900, "1.0240") if descendants else _usage(184_200, "0.8112")

    async def read_turns(self, session_id: str, *, before: int | None = None, after: int | None = None, limit: int = 20) -> ConversationPage:
        """The newest."""
        return ConversationPage(session_id=session_id, thread_id=session_id, turns=list_turns(), before=40, committed=58, head=60)

    async def read_turn(self, session_id: str, number: int) -> ConversationPage:
        """One of them."""
        page = await self.read_turns(session_id)
        return page.model_copy(update={"turns": tuple(each for each in page.turns if each.number == number)})

    async def find_turn(self, session_id: str, number: int) -> int:
        """Where it begins."""
        return next(each.start for each in list_turns() if each.number == number)

    async def read_message(self, session_id: str, position: int) -> WholeMessage:
        """One of them."""
        turn, message = next((turn, each) for turn in list_turns() for each in turn.messages if each.position == position)
        return WholeMessage(session_id=session_id, thread_id=session_id, turn=turn.number, message=message)

    async def get_context(self, session_id: str, position: int) -> ModelContext:
        """What a step was given."""
        messages = [each for turn in list_turns() for each in turn.messages if each.position < position]
        return ModelContext(
            session_id=session_id, turn=15, step=2, answer=position, agent="support", model="claude-sonnet-4-5", recorded=True,
            first=24, left_out=24, provider_tokens=TokenSums(input=6_220, output=204, cached=4_100),
            parts=(
                ContextPart(kind="instructions", text="You are the support agent of a shop for lamps. Be brief and friendly. Never promise a refund before a colleague has approved it.\n\nToday is {{date}}.", tokens=1_210),
                ContextPart(kind="tools", name="5 tools", text="find_order(order)\ncreate_return_label(order, sku, count, pickup_date)\nrefund(order, amount, currency, reason)\nask_researcher(question)\nsearch_policy(words)", tokens=1_460),
                ContextPart(kind="summary", text="The customer bought five LUX-20 on 21 November. They asked about dimming (answered) and about delivery (arrived on the 27th).", tokens=640),
                *(ContextPart(kind="message", role=each.role, text=each.text or "find_order, create_return_label", position=each.position, tokens=90 + 41 * n) for n, each in enumerate(messages)),
                ContextPart(kind="input", role="tool", name="create_return_label", text="CarrierError: DHL answered 422: 'pickup_date' 2026-11-29 is a Sunday", position=47, tokens=212),
            ),
        )  # fmt: skip

    async def get_state(self, session_id: str, checkpoint_id: str | None = None) -> StateAt:
        """Values."""
        return StateAt(
            session_id=session_id, version=17,
            values={"order": {"id": "4711", "status": "return_requested", "lines": [{"sku": "LUX-20", "keep": 3, "return": 2}]}, "label": "RL-99120", "refund": None, "customer": {"name": "Maria Keller", "vip": True}, "notes": ["photos received", "pickup on Monday"]},
        )  # fmt: skip

    async def compare_states(self, session_id: str, before: str, after: str | None = None) -> StateComparison:
        """Differences of each kind."""
        points = (await self.list_checkpoints(session_id)).checkpoints
        return StateComparison(
            session_id=session_id, before=points[1], after=points[0],
            differences=(
                Difference(path="/label", change="added", after="RL-99120"),
                Difference(path="/order/status", change="changed", before="delivered", after="return_requested"),
                Difference(path="/draft", change="removed", before={"sku": "LUX-20", "count": 2}),
            ),
        )  # fmt: skip

    async def list_checkpoints(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> CheckpointList:
        """Newest first."""
        now = read_clock()
        return CheckpointList(
            session_id=session_id,
            checkpoints=tuple(
                CheckpointOverview(checkpoint_id=f"cp-{seq:04}", seq=seq, version=seq, step=3, status=SessionStatus.ACTIVE, position=seq * 3, at=now - (18 - seq) * 5 * MINUTE, superseded_by="cp-0016" if seq == 14 else None)
                for seq in range(17, 5, -1)
            ),
        )  # fmt: skip

    async def get_tree(self, session_id: str) -> SessionBranch:
        """A session, its sub-agent and one below it."""
        overviews = list_overviews()
        leaf = SessionBranch(overview=overviews[2].model_copy(update={"session_id": "research-1/reader", "title": "Read the LUX-20 manual", "agent": "reader"}), usage=_usage(9_800, "0.0180", 2, 0), sums=_usage(9_800, "0.0180", 2, 0))
        child = SessionBranch(overview=overviews[2], usage=_usage(37_900, "0.1948", 9, 0), sums=_usage(47_700, "0.2128", 11, 0), children=(leaf,), hidden=1)
        return SessionBranch(overview=overviews[0], usage=_usage(184_200, "0.8112"), sums=_usage(231_900, "1.0240", 25), children=(child,))

    async def list_runs(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> Any:
        """Newest first."""
        return SimpleNamespace(runs=list_attempts(), next_cursor="next")

    async def get_place(self, session_id: str) -> ThreadPlace:
        """Where it lies."""
        return make_place()

    async def verify_thread(self, session_id: str) -> Any:
        """Sound."""
        return SimpleNamespace(problems=(), unarchived=4)

    async def find_calls(self, wanted: SessionFilter, **given: Any) -> AsyncIterator[FoundCall]:
        """Failed ones."""
        now = read_clock()
        failed = list_turns()[1].messages[1].calls[1]
        yield FoundCall(session_id=ID, user_id="maria.keller", agent="support", turn=15, step=1, message_position=45, at=now - 9 * MINUTE, call=failed)
        other = _call("lookup_vat", 12, 0, {"country": "AT", "id": "ATU99999999"}, status="failed", duration_ms=30_000, error="TimeoutError: the VAT service did not answer within 30 s")
        yield FoundCall(session_id="invoice-88", user_id="acme-gmbh", agent="billing", turn=4, step=2, message_position=12, at=now - 41 * MINUTE, call=other)
        denied = _call("delete_account", 7, 0, {"account": "lea_w"}, status="denied", error="denied: the customer only wants to cancel")
        yield FoundCall(session_id="chat-20929", user_id="lea_w", agent="support", turn=2, step=1, message_position=7, at=now - 2 * HOUR, call=denied)


def list_schedules() -> tuple[ScheduleFacts, ...]:
    """One that is well, one that failed, one that is paused."""
    now = read_clock()
    runs = tuple(ScheduleRun(at=now - n * MINUTE, workflow_id="helix-maintenance/agents/sweep", run_id=f"0198c7f{n}", status="completed") for n in range(1, 5))
    failed = ScheduleRun(at=now - 3 * HOUR, workflow_id="helix-maintenance/agents/keep", run_id="0198c7a1", status="failed", failure="StoreUnavailableError: the bucket answered 503 for ten minutes")
    start = "helix-maintenance/agents"
    return (
        ScheduleFacts(schedule_id=f"{start}/sweep", kind="sweep", recent=runs, next_at=(now + 20 * SECOND,)),
        ScheduleFacts(schedule_id=f"{start}/keep", kind="keep", recent=(failed,), next_at=(now + 21 * HOUR,)),
        ScheduleFacts(schedule_id=f"{start}/cleanup", kind="cleanup", paused=True, note="paused for the migration of the tables"),
    )
