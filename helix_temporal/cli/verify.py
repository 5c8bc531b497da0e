"""``helix-temporal thread verify``: whether threads and their archives are sound; changes nothing."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer

from helix_temporal.backends import Backends
from helix_temporal.cli._backends import run_with_backends
from helix_temporal.cli._ids import check_ids
from helix_temporal.cli._output import AsJson, print_note, print_output, print_text, print_warning
from helix_temporal.cli.outputs import ThreadVerdict, Verification
from helix_temporal.cli.statuses import ExitStatus, sum_statuses
from helix_temporal.errors import HelixError, ThreadNotFoundError
from helix_temporal.stores.threads.verification import (
    DataSubset,
    ThreadVerification,
    VerifiedThread,
    parse_data_subset,
)

_SAY_EVERY: Final = 5.0
"""Seconds between two lines of progress."""


def verify(
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THREAD_ID",
            help="The threads; a session's main thread has the session's id.",
            callback=check_ids("thread id"),
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All threads, archived and hot.")] = False,
    subset: Annotated[
        str | None,
        typer.Option(
            "--read-data-subset",
            metavar="N/T|X%|SIZE",
            help="Of all threads, read the data of a part: 1/30 of thirty parts, 5% or 500M by chance;"
            " 0% reads none. By default all data.",
        ),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="Go on where an earlier --all was stopped."),
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=64, help="Threads whose data is read at once, an object of each."
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Verify that threads are sound: what the manifest names is there, every byte as it was written.

    Of all threads the structure is looked at (manifest, index, each object's length), and of those in the
    part that is read every message.  Sessions and the maintenance worker may run meanwhile.  One that is
    damaged is named, and the others go on.  Ctrl-C says where --from goes on.

    Exit statuses: 0 all sound; 6 the thread that was named is damaged; 3 some of several are; 4 there is no
    such thread; 7 a store does not answer.
    """
    if bool(thread_ids) == everything:
        raise typer.BadParameter("name threads, or give --all", param_hint="THREAD_ID")
    if thread_ids and (subset is not None or place is not None):
        raise typer.BadParameter("is for --all", param_hint="--read-data-subset / --from")
    chosen = _parse_subset(subset)

    async def run(backends: Backends) -> tuple[Verification, ExitStatus]:
        verifying = _make_verification(backends, chosen, parallel)
        if thread_ids:
            return await _verify_named(verifying, thread_ids, shows=not as_json)
        return await _verify_all(verifying, place, shows=not as_json)

    found, status = run_with_backends(run)
    print_output(found, _show_sums, as_json=as_json)
    if status is not ExitStatus.DONE:
        raise typer.Exit(status)


def _make_verification(backends: Backends, subset: DataSubset, parallel: int) -> ThreadVerification:
    """Of stores that are read alone: a damaged hot thread stays where it is, to be named."""
    if backends.tiered is None:
        return ThreadVerification(backends.hot, backends.threads, None, subset=subset, parallel=parallel)
    reader = backends.tiered.for_reading()
    return ThreadVerification(backends.hot, reader, reader.upkeep, subset=subset, parallel=parallel)


def _parse_subset(text: str | None) -> DataSubset:
    if text is None:
        return DataSubset()
    try:
        return parse_data_subset(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--read-data-subset") from None


async def _verify_named(
    verifying: ThreadVerification, thread_ids: Sequence[str], *, shows: bool
) -> tuple[Verification, ExitStatus]:
    sums, failed = _Sums(), list[ExitStatus]()
    for thread_id in thread_ids:
        try:
            found = ThreadVerdict.model_validate(_fields_of(await verifying.verify_thread(thread_id)))
        except ThreadNotFoundError as error:
            found = ThreadVerdict(thread_id=thread_id, outcome="not_found", problems=(_describe(error),))
        sums.add_verdict(found, keep=True)
        if found.outcome != "sound":
            failed.append(_STATUSES[found.outcome])
        if shows:
            _show_verdict(found)
    return sums.total, sum_statuses(sums.total.sound, failed)


_STATUSES: Final = {
    "damaged": ExitStatus.DAMAGED,
    "unread": ExitStatus.STORE_AWAY,
    "not_found": ExitStatus.NOT_FOUND,
}


async def _verify_all(
    verifying: ThreadVerification, place: str | None, *, shows: bool
) -> tuple[Verification, ExitStatus]:
    sums, at, said = _Sums(), place, time.monotonic()
    try:
        async for each in verifying.verify_all(place):
            found = ThreadVerdict.model_validate(_fields_of(each))
            sums.add_verdict(found, keep=found.outcome != "sound")
            at = each.place
            if shows and found.outcome != "sound":
                _show_verdict(found)
            if time.monotonic() - said > _SAY_EVERY:
                said = time.monotonic()
                print_note(f"  {_describe_progress(sums.total)}, at {at}")
    except (asyncio.CancelledError, HelixError):
        if at is not None:
            print_note(f"stopped after {_describe_progress(sums.total)}; go on with --from {at}")
        raise
    return sums.total, ExitStatus.PARTLY if sums.total.damaged + sums.total.unread else ExitStatus.DONE


def _fields_of(found: VerifiedThread) -> dict[str, object]:
    return {name: value for name, value in asdict(found).items() if name != "place"}


class _Sums:
    """Counts threads; of all of them only those that are kept stay in memory."""

    def __init__(self) -> None:
        self.total = Verification()

    def add_verdict(self, found: ThreadVerdict, *, keep: bool) -> None:
        """Count a thread."""
        now, outcome = self.total, found.outcome
        self.total = now.model_copy(
            update={
                "threads": (*now.threads, found) if keep else now.threads,
                "seen": now.seen + 1,
                "sound": now.sound + (outcome == "sound"),
                "damaged": now.damaged + (outcome == "damaged"),
                "unread": now.unread + (outcome in {"unread", "not_found"}),
                "read": now.read + found.data_read,
                "messages": now.messages + found.messages,
                "unarchived": now.unarchived + found.unarchived,
                "bytes_read": now.bytes_read + found.bytes_read,
            }
        )


def _show_verdict(found: ThreadVerdict) -> None:
    if found.outcome == "sound":
        hot_only = f", {found.unarchived:,} of them only in the hot tier" if found.unarchived else ""
        print_text(f"{found.thread_id}: {found.messages:,} messages, all sound{hot_only}")
        return
    for problem in found.problems:
        print_warning(f"{found.thread_id}: {found.outcome}: {problem}")


def _show_sums(found: Verification) -> None:
    if found.seen != 1 or not found.threads:
        print_text(_describe_progress(found))


def _describe_progress(found: Verification) -> str:
    wrong = f"{found.damaged:,} damaged" + (f", {found.unread:,} not read" if found.unread else "")
    return f"{found.seen:,} threads, {found.sound:,} sound, {wrong}; {_describe_depth(found)}"


def _describe_depth(found: Verification) -> str:
    """Of how many all data was read, and of how many only what the structure tells."""
    size = f" ({found.bytes_read:,} bytes of messages)" if found.bytes_read else ""
    data = f"data read of {found.read:,}{size}"
    rest = found.seen - found.read - found.unread
    return f"{data}, the structure alone of {rest:,}" if rest > 0 else data


def _describe(error: HelixError) -> str:
    return f"{type(error).__name__}: {error}"
