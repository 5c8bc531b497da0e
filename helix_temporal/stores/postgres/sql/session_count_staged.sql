SELECT count(*) FROM "{prefix}staging" WHERE session_id = $1
