SELECT count(*) FROM "{prefix}closed_steps" WHERE session_id = $1
