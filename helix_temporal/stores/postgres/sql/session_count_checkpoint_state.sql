SELECT count(*) FROM "{prefix}checkpoint_states" WHERE session_id = $1
