-- A commit that leaves the state: $1 session, $2 the revision it had, $3 fence.
UPDATE "{prefix}states" AS s SET rev = s.rev + 1, max_epoch = greatest(s.max_epoch, $3::bigint)
WHERE s.session_id = $1 AND s.rev = $2
RETURNING s.session_id, s.rev
