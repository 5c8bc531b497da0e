-- The header after a step, where the thread stands exactly at its head; followed by more conditions or RETURNING t.*.
-- The row lock of the header makes one of several the first, so the messages' places are free.
-- $1 thread id, $2 epoch, $3 position and $4 last id of the step's head, $5 position and $6 last id after it,
-- $7 to $9 see _thread_added, $10 packed bytes, $11 whether it commits, $12 slice or null, $13 its expected version,
-- $14 position known to be archived or -1 (not beyond $5), $15 size at it
UPDATE "{prefix}threads" AS t
-- rule: stores.threads.operations.append_to_thread
SET head = $5, last_id = $6,
    committed = CASE WHEN $11::boolean THEN GREATEST(t.committed, $5) ELSE t.committed END,
    slice = COALESCE($12::bytea, t.slice),
    slice_version = t.slice_version + CASE WHEN $12::bytea IS NULL THEN 0 ELSE 1 END,
    size = t.size + $10::bigint,
    -- rule: stores.threads.operations.moved_hint
    archived = GREATEST(t.archived, $14::bigint),
    archived_size = CASE WHEN $14::bigint > t.archived THEN $15::bigint ELSE t.archived_size END,
    -- rule: stores.threads.operations.unarchived_since
    unarchived_since = CASE
        WHEN GREATEST(t.archived, $14::bigint) >= $5 THEN 0
        WHEN t.unarchived_since <> 0 AND GREATEST(t.archived, $14::bigint) < t.head THEN t.unarchived_since
        ELSE {now}
    END,
    expires_at = NULL
WHERE t.thread_id = $1 AND {include:fence}
    -- rule: stores.threads.standing_step.is_repeated_step
    AND t.head = $3 AND t.last_id = $4
    -- rule: stores.threads.operations.check_slice_version
    AND ($12::bytea IS NULL OR t.slice_version = $13::bigint)
    AND {include:alive} AND {include:sound}
