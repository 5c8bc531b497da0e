-- $1 beyond this id, $2 how many.
SELECT session_id FROM "{prefix}states" WHERE cleanup_pending AND session_id > $1 ORDER BY session_id LIMIT $2
