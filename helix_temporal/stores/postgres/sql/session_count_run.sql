SELECT count(*) FROM "{prefix}runs" WHERE session_id = $1
