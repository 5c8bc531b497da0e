-- Replaces the slice against its expected version; the same bytes again change nothing and succeed.
-- $1 thread id, $2 epoch, $3 slice, $4 expected version
-- rule: stores.threads.operations.save_slice
UPDATE "{prefix}threads" AS t
SET slice = $3, slice_version = $4::bigint + 1,
    expires_at = CASE WHEN t.slice_version = $4::bigint THEN NULL ELSE t.expires_at END
WHERE t.thread_id = $1 AND {include:fence} AND {include:alive} AND {include:sound}
    -- rule: stores.threads.operations.check_slice_version
    AND (t.slice_version = $4::bigint OR t.slice_version = $4::bigint + 1 AND t.slice = $3)
RETURNING t.slice_version
