"""What the checker knows: every message that was ever appended, and what the stores hold right now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson
import zstandard

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier.format import (
    Layout,
    Manifest,
    SegmentRef,
    decode_index,
    decode_manifest,
    decode_segment,
)
from helix_temporal.models.steps import ReopenHeads
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend
from helix_temporal.stores.protocols.threads import ThreadPage
from tests.simulation._world import World


@dataclass(frozen=True, slots=True)
class Link:
    """Where a message stands, and after which one.

    A step that was cut before anybody knew of it may be taken again: its messages then stand elsewhere.

    Attributes:
        start: Of its step.
        inputs: Messages of the step before it.
        places: Where it has ever been, and after which one.
    """

    position: int
    before: str
    message: StoredMessage
    start: Head
    inputs: tuple[str, ...]
    places: set[tuple[int, str]]


class Log:
    """Looks into both stores without their faults, and judges what is written.

    Args:
        strict: Also judge each single write; otherwise only what a user could see.
    """

    def __init__(
        self, world: World, threads: MemoryThreads, blobs: MemoryBlobs, layout: Layout, *, strict: bool
    ) -> None:
        self._world, self._threads, self._blobs, self._layout = world, threads, blobs, layout
        self._strict = strict
        self._links: dict[str, Link] = {}
        self._decoded: dict[str, tuple[bytes, Manifest]] = {}
        self._owners: set[str] = set()
        self.revived: set[str] = set()
        self.is_overrun = self.returned = False

    # -- what happened

    def appended(self, step: StepAppend, appended: Appended) -> None:
        """The hot tier took a step."""
        self._follow(step.thread_id, step.head, appended.messages)
        if self._strict and step.commits:
            self._check_committed(step.thread_id, appended.header)

    def _follow(self, thread_id: str, head: Head, messages: tuple[StoredMessage, ...]) -> None:
        """These messages stand after ``head``."""
        before, inputs = head.last_id, list[str]()
        for position, message in enumerate(messages, head.position):
            link = Link(position, before, message, head, tuple(inputs), {(position, before)})
            known = self._links.setdefault(message.id, link)
            is_same = (known.position, known.before) == (position, before)
            if (message.kind == Kind.RESULT and is_same) or (
                message.kind == Kind.USER and known.message == message
            ):
                # Of a step that was lost before anybody knew of it: it was taken again.  One that is archived
                # is not lost: a late attempt has appended to a hot thread that went back.
                stays = known if known.message != message and self._is_archived(thread_id, known) else link
                stays.places.update(known.places | link.places)
                self._links[message.id] = stays
            elif not is_same or known.message != message:
                self._world.fail(f"message {message.id} is there twice: {self._links[message.id]}, {link}")
            before = message.id
            inputs.append(before)

    def _is_archived(self, thread_id: str, link: Link) -> bool:
        return link.message in self.archive(self.manifest(thread_id))

    def _check_committed(self, thread_id: str, header: HotHeader) -> None:
        thread = self._threads._threads[thread_id]
        at = header.committed - 1 - header.base.position
        if at >= 0 and thread.messages[at].kind == Kind.CALLS:
            self._world.fail(f"committed {header.committed} is inside a tool call")

    def before_install(self, header: HotHeader) -> None:
        """One that comes so late that a newer hot thread was archived and dropped takes the hot tier back."""
        if self._threads._find_thread(header.thread_id) is None and (
            header.epoch < (archive := self.manifest(header.thread_id)).epoch
            or header.head.position < archive.head.position
        ):
            self._world.note("an old copy made hot")

    def before_evict(self, thread_id: str) -> None:
        """For the trace."""
        thread = self._threads._threads.get(thread_id)
        if thread is not None and self._world.trace:
            self._world.say(f"evict at {thread.header.head} committed {thread.header.committed}")

    def trimmed(self, header: HotHeader) -> None:
        """The hot tier forgot what is below the base: the archive must hold it."""
        self._world.note("hot: trimmed")
        manifest = self.manifest(header.thread_id)
        is_same = manifest.epoch == header.epoch
        if self._strict and is_same and not self.leads(header.base, manifest.head):
            self._world.fail(f"forgot up to {header.base}, which the archive at {manifest.head} lacks")

    def stored(self, key: str, data: bytes) -> None:
        """The object store took an object."""
        if self._world.trace:
            self._world.say(f"stored {key.rsplit('/', 2)[-2:]}")
        if key.endswith("/manifest"):
            self._check_manifest(key, data)

    def _check_manifest(self, key: str, data: bytes) -> None:
        """No manifest ever names what is not there."""
        fields = orjson.loads(data[: data.find(b"\n")])
        old = self._decoded.get(key)
        thread_id = fields["thread_id"]
        manifest = decode_manifest(thread_id, data)
        self._decoded[key] = (data, manifest)
        if self._world.trace:
            self._world.say(
                f"manifest v{manifest.version} e{manifest.epoch % 10**9} {manifest.owner} head "
                f"{manifest.head.position}({manifest.head.last_id}) committed {manifest.committed} "
                f"gen {manifest.gen} slice {manifest.slice_version}{' closed' if manifest.closed else ''} "
                f"index {manifest.index is not None} "
                f"segments {len(manifest.segments)} inline {len(manifest.inline)}"
            )
        self._check_objects(manifest)
        if old is not None and old[1].epoch < manifest.epoch and old[1].owner == manifest.owner:
            self.returned = self.returned or manifest.owner in self.revived
        self.is_overrun = self.is_overrun or manifest.epoch in self._world.undone_epochs
        is_taken = old is None or old[1].owner != manifest.owner
        if is_taken and manifest.epoch not in self._world.reset_epochs:
            (self.revived if manifest.owner in self._owners else self._owners).add(manifest.owner)
        self._count(old[1] if old else Manifest(thread_id), manifest)
        if self._strict and old is not None:
            self._check_step(old[1], manifest)

    def _count(self, old: Manifest, new: Manifest) -> None:
        """What the short run went through."""
        seen = self._world.seen
        if new.epoch > old.epoch:
            seen["manifest: opened"] += 1
            cut = new.head.position
            if any(ref.first < cut < ref.stop for ref in old.segments):
                seen["manifest: cut inside a segment"] += 1
            if old.index is not None and cut < old.index.stop:
                seen["manifest: cut inside the index"] += 1
        elif new.head == old.head and len(new.segments) < len(old.segments) and new.index == old.index:
            seen["manifest: segments merged"] += 1
        if len(new.segments) > len(old.segments):
            seen["manifest: segment added"] += 1
        if new.index is not None and new.index != old.index:
            seen["manifest: index written"] += 1
        if new.slice_object and new.slice_object != old.slice_object:
            seen["manifest: large state"] += 1

    def _check_objects(self, manifest: Manifest) -> None:
        for name in self.named(manifest):
            if name not in self._blobs._blobs:
                self._world.fail(f"the manifest names {name}, which is not there")

    def _check_step(self, old: Manifest, new: Manifest) -> None:
        # Version 0 says that there is no thread, and of which generation new objects are.
        if new.version != (old.version + 1 if new.version else 0) or new.epoch < old.epoch:
            self._world.fail(
                f"archive went back: version {old.version} -> {new.version}, epoch {old.epoch} -> {new.epoch}"
            )
        if new.epoch == old.epoch and not new.deleted and not self.leads(old.head, new.head):
            self._world.fail(f"archive at {old.head} was replaced by another at {new.head}")
        if new.committed and self._kind_before(new, new.committed) == Kind.CALLS:
            self._world.fail(f"archive committed {new.committed} inside a tool call")

    def deleted(self, key: str) -> None:
        """The object store dropped an object."""
        self._world.note("object deleted")
        found = self._decoded.get(key[: key.rindex("/", 0, key.rindex("/"))] + "/manifest")
        if found is not None and key in self.named(found[1]):
            self._world.fail(f"{key} was deleted, and the manifest names it")

    # -- what is there

    def named(self, manifest: Manifest) -> list[str]:
        """Keys of the objects that a manifest needs."""
        thread_id, names = manifest.thread_id, []
        refs = manifest.segments
        if manifest.index is not None:
            names.append(self._layout.index_key(thread_id, manifest.index))
            refs = (*self._indexed(manifest), *refs)
        if manifest.slice_object:
            names.append(self._layout.slice_key(thread_id, manifest.slice_object))
        return [*names, *(self._layout.segment_key(thread_id, ref) for ref in refs)]

    def _indexed(self, manifest: Manifest) -> tuple[SegmentRef, ...]:
        if manifest.index is None:
            return ()
        blob = self._blobs._blobs.get(self._layout.index_key(manifest.thread_id, manifest.index))
        if blob is None:
            self._world.fail("the index is not there")
        return decode_index(manifest.index, blob.data)

    def manifest(self, thread_id: str) -> Manifest:
        """What the object store holds now."""
        found = self._decoded.get(self._layout.manifest_key(thread_id))
        return found[1] if found else Manifest(thread_id)

    def archive(self, manifest: Manifest) -> list[StoredMessage]:
        """All messages of an archive."""
        messages: list[StoredMessage] = []
        for ref in (*self._indexed(manifest), *manifest.segments):
            blob = self._blobs._blobs.get(self._layout.segment_key(manifest.thread_id, ref))
            if blob is None:
                self._world.fail(f"segment {ref.first}-{ref.last} is not there")
            messages += decode_segment(ref, blob.data)
        return [*messages, *manifest.inline]

    def slice(self, manifest: Manifest) -> bytes:
        """The state slice of an archive."""
        if not manifest.slice_object:
            return manifest.slice
        key = self._layout.slice_key(manifest.thread_id, manifest.slice_object)
        return zstandard.ZstdDecompressor().decompress(self._blobs._blobs[key].data)

    def hot(self, thread_id: str) -> tuple[HotHeader, tuple[StoredMessage, ...]] | None:
        """What the hot tier holds now."""
        thread = self._threads._find_thread(thread_id)
        return None if thread is None else (thread.header, thread.messages)

    # -- how messages follow each other

    def link(self, message_id: str) -> Link | None:
        """Where a message stands."""
        return self._links.get(message_id)

    def _kind_before(self, manifest: Manifest, position: int) -> str | None:
        ids = self.ids(manifest.head)[:position]
        link = self._links.get(ids[-1]) if ids else None
        return link.message.kind if link else None

    def leads(self, early: Head, late: Head) -> bool:
        """Whether ``late`` comes after ``early`` on one timeline."""
        ids = self.ids(late)
        if len(ids) != late.position or early.position > len(ids):
            return False
        return early.position == 0 or ids[early.position - 1] == early.last_id

    def ids(self, head: Head) -> list[str]:
        """All message ids up to a head, by what was appended."""
        found, last = list[str](), head.last_id
        while (link := self._links.get(last)) is not None:
            found += [last, *reversed(link.inputs)]
            last = link.start.last_id
        return found[::-1]

    # -- judgements

    def check_messages(self, messages: Sequence[StoredMessage]) -> None:
        """Each message as it was appended, each tool call followed by its results."""
        for message in messages:
            link = self._links.get(message.id)
            if link is None or link.message != message:
                self._world.fail(f"message {message.id} is not as it was appended")
        for at, message in enumerate(messages):
            before = messages[at - 1].kind if at else ""
            if message.kind == Kind.RESULT and before not in {Kind.CALLS, Kind.RESULT}:
                self._world.fail(f"message {message.id} is a result without a call")
            if before == Kind.CALLS and message.kind != Kind.RESULT:
                self._world.fail(f"message {message.id} stands between a call and its result")

    def check_reopened(self, heads: ReopenHeads, before: Manifest, epoch: int) -> None:
        """An answer that is archived and that the workflow asks for is not cut: it would be paid again.

        An attempt that comes late may have seen another open, of a higher epoch, cut what a tool took back.
        """
        after, at, count = self.manifest(before.thread_id), heads.head.position, len(heads.inputs)
        stored = self.ids(before.head)
        step = stored[at : at + count + 1]
        stood = count and tuple(step[:-1]) == heads.inputs and ["", *stored][at] == heads.head.last_id
        if not heads.answered:
            return  # it asks for results alone
        kinds = {Kind.ANSWER, Kind.CALLS}
        if not stood or self._links[step[-1]].message.kind not in kinds:
            return
        if (after.version, after.epoch) != (before.version + 1, epoch):
            return
        if self.ids(after.head)[at : at + count + 1] != step:
            self._world.fail(f"{step} stood at {heads.head}, and was cut by an open that asked for it")

    def check_page(self, page: ThreadPage, *, backward: bool) -> None:
        """Part of a prefix of finished turns, of one timeline; whole at the side where the page ends."""
        messages, position = page.messages, page.first
        if not messages:
            if page.committed and page.after is not None:
                self._world.fail(f"an empty page, yet more follows: {page}")
            return
        before = None
        for message in messages:
            link = self._links.get(message.id)
            places = link.places if link is not None and link.message == message else set()
            if not any(at == position and before in {None, last} for at, last in places):
                self._world.fail(
                    f"a page shows {message.id} at {position} after {before}, appended was {link}"
                )
            before, position = message.id, position + 1
        is_split = messages[0].kind == Kind.RESULT if backward else messages[-1].kind == Kind.CALLS
        if position > page.committed or is_split:
            self._world.fail(
                f"a page from {page.first} to {position} shows part of a turn; {page.committed} are finished"
            )


class NoLog:
    """In place of `Log`, which follows a session workflow: what counts here is what programs were told."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None
