SELECT count(*) FROM "{prefix}checkpoints" WHERE session_id = $1
