-- Another header over one that is locked; it does not expire.
-- $1 thread id, $2… the header, in the order of its columns
UPDATE "{prefix}threads"
SET (
    thread_id, epoch, owner, closed, head, last_id, committed, base, base_id, slice, slice_version, adapter, size,
    base_size, archived, archived_size, unarchived_since, deleted, born, cut, origin
) = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21),
    expires_at = NULL
WHERE thread_id = $1
