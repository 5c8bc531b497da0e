-- A header where none is; nothing if somebody was faster.
-- $1 thread id, $2… the header, in the order of its columns
INSERT INTO "{prefix}threads" (
    thread_id, epoch, owner, closed, head, last_id, committed, base, base_id, slice, slice_version, adapter, size,
    base_size, archived, archived_size, unarchived_since, deleted, born, cut, origin
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
ON CONFLICT (thread_id) DO NOTHING
RETURNING true
