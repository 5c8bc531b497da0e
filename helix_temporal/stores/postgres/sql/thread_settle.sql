-- What still takes effect of a step that stands already: its commit, and what is known of the archive.
-- $1 thread id, $2 epoch, $3 position and $4 last id after the step as it stands, $5 whether it commits,
-- $6 position known to be archived or -1, $7 size at it
UPDATE "{prefix}threads" AS t
-- rule: stores.threads.operations.append_to_thread
SET committed = CASE WHEN $5::boolean THEN GREATEST(t.committed, $3) ELSE t.committed END,
    -- rule: stores.threads.operations.moved_hint
    archived = CASE WHEN $6::bigint <= t.head THEN GREATEST(t.archived, $6::bigint) ELSE t.archived END,
    archived_size = CASE
        WHEN $6::bigint > t.archived AND $6::bigint <= t.head THEN $7::bigint ELSE t.archived_size
    END,
    -- rule: stores.threads.operations.unarchived_since
    unarchived_since = CASE
        WHEN $6::bigint = t.head OR t.archived >= t.head THEN 0
        WHEN t.unarchived_since <> 0 THEN t.unarchived_since
        ELSE {now}
    END,
    expires_at = CASE WHEN $5::boolean AND $3 > t.committed THEN NULL ELSE t.expires_at END
WHERE t.thread_id = $1 AND {include:fence} AND {include:alive} AND {include:sound}
    AND EXISTS (
        SELECT FROM "{prefix}messages" AS m
        WHERE m.thread_id = $1 AND m.position = $3 - 1 AND m.id = $4
    )
RETURNING {include:header}
