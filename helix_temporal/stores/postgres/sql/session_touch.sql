-- A commit that leaves the state; the new revision, or no row if it is not $2 any more.
-- $1 session, $2 the revision it had, $3 fence, $4 to $13 rows (_session_rows), $14 to $18 what must not be
-- there (_session_unless).
-- rule: stores.sessions.operations.apply_commit
WITH guard AS (
    UPDATE "{prefix}states" AS s
    SET rev = s.rev + 1, max_epoch = greatest(s.max_epoch, $3::bigint)
    WHERE s.session_id = $1 AND s.rev = $2 AND {include:session_unless+13}
    RETURNING s.session_id, s.rev
), {include:session_rows}
SELECT g.rev FROM guard AS g
