-- The first commit of a session without a state: only revision, fence and rows.  Arguments as in session_create.
-- rule: stores.sessions.operations.apply_commit
WITH guard AS (
    INSERT INTO "{prefix}states" AS s (session_id, rev, max_epoch, deleted, body, version, status, created_at, updated_at)
    VALUES ($1, $2::bigint + 1, $3, true, '', 0, '', 0, 0)
    ON CONFLICT (session_id) DO NOTHING
    RETURNING s.session_id, s.rev
), {include:session_rows}
SELECT g.rev FROM guard AS g
