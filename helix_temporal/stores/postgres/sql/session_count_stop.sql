SELECT count(*) FROM "{prefix}stop_requests" WHERE session_id = $1
