-- session_update with a step of the thread, if it stands at the step's head; revision and header after it,
-- or null where it does not.
-- States and threads are both looked at before either is changed. The lock on the state decides between two writers.
-- Arguments as in session_update, then $38 to $52 the step (_thread_moved).
-- rule: stores.sessions.operations.apply_commit
WITH held AS (
    SELECT FROM "{prefix}states" AS s
    WHERE s.session_id = $1 AND s.rev = $2 AND {include:session_unless+32}
    FOR UPDATE
), thread_moved AS (
    {include:thread_moved+37} AND EXISTS (SELECT FROM held) RETURNING t.*
), thread_added AS (
    {include:thread_added+37}
), guard AS (
    UPDATE "{prefix}states" AS s
    SET rev = s.rev + 1, max_epoch = greatest(s.max_epoch, $3::bigint), deleted = false, {include:session_state+13}
    WHERE s.session_id = $1 AND s.rev = $2 AND EXISTS (SELECT FROM thread_moved)
    RETURNING s.session_id, s.rev
), {include:session_rows}
SELECT g.rev, {include:header_written} FROM held LEFT JOIN (guard AS g CROSS JOIN thread_moved AS t) ON true
