SELECT count(*) FROM "{prefix}ops" WHERE session_id = $1
