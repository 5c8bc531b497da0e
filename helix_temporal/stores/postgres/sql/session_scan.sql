-- $1 beyond this id, $2 how many.
SELECT session_id FROM "{prefix}states" WHERE session_id > $1 AND NOT deleted ORDER BY session_id LIMIT $2
