"""The session store of all backends: the rules once, over the port `SessionRows`."""

from helix_temporal.stores.sessions import (
    call_answers,
    checkpoints,
    commit,
    cuts,
    life,
    lists,
    messages,
    runs,
    staging,
    whole,
)
from helix_temporal.stores.sessions.base import SessionStoreBase


class RowSessions(SessionStoreBase):
    """A `SessionStore` over a backend's `SessionRows`, and a thread store for the messages.

    Every change is one view and one commit, and again if somebody was faster.  What each operation does
    stands beside its rules, in the module named here.

    Args:
        rows: Where sessions lie.
        threads: Where their messages lie; None if nobody asks this store for messages.
        together: ``threads`` are over the hot threads that lie with these very sessions, so that a step
            and a state are committed in one unit; by default they are, if the backend has any.  With
            threads elsewhere (Redis beside PostgreSQL) it must be False.
        require_epoch: Refuse writes of a session's writer that name no epoch.
        streams: Where sessions are shown: what was shown of one goes with it.
        packs: Where old records of sessions are archived: they go with their session.
        archive_required: An append is not acknowledged before the archive has it.
        check_archive: Asked before each look at a session; raises where threads go to another archive.
        recalls: A run's commit, or an append, does not look at the session again where nobody has written
            it since this process recorded the run, or appended.  Only over a backend that is ``durable``:
            the others may forget a session, and have its revisions a second time.

    Raises:
        InvalidConfigError: ``together`` over a backend that keeps no threads.
    """

    create_session = life.create_session
    load_state = life.load_state
    session_exists = life.session_exists
    save_state = life.save_state
    update_status = life.update_status
    compare_and_set_status = life.compare_and_set_status
    merge_custom_state = life.merge_custom_state
    increment_step_count = life.increment_step_count
    increment_resume_count = life.increment_resume_count
    finish_cleanup = life.finish_cleanup
    now = life.now

    delete_session = whole.delete_session
    fork_session = whole.fork_session

    append_messages = messages.append_messages
    get_messages = messages.get_messages
    get_message_count = messages.get_message_count
    truncate_messages = messages.truncate_messages
    cut_messages = cuts.cut_messages

    start_run = runs.start_run
    update_run = runs.update_run
    get_run = runs.get_run
    get_current_run = runs.get_current_run
    list_runs = runs.list_runs
    request_stop = runs.request_stop
    get_stop_request = runs.get_stop_request
    add_sub_session_refs = runs.add_sub_session_refs
    update_sub_session_ref = runs.update_sub_session_ref
    remove_sub_session_ref = runs.remove_sub_session_ref
    list_sub_session_refs = runs.list_sub_session_refs

    save_state_and_promote_staging = commit.save_state_and_promote_staging
    stage_changes = staging.stage_changes
    list_staged = staging.list_staged
    discard_staging = staging.discard_staging
    promote_staging = staging.promote_staging

    get_checkpoint = checkpoints.get_checkpoint
    get_latest_checkpoint = checkpoints.get_latest_checkpoint
    list_checkpoints = checkpoints.list_checkpoints
    restore_checkpoint = checkpoints.restore_checkpoint
    prune_checkpoints = checkpoints.prune_checkpoints
    build_snapshot = checkpoints.build_snapshot

    submit_tool_result = call_answers.submit_tool_result
    resolve_tool_call_owner = call_answers.resolve_tool_call_owner

    list_sessions = lists.list_sessions
    iter_session_ids = lists.iter_session_ids
    list_expired = lists.list_expired
    list_due = lists.list_due
    list_cleanup_pending = lists.list_cleanup_pending
    find_expired_pending = lists.find_expired_pending
    purge_operations = lists.purge_operations
