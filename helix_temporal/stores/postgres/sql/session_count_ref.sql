SELECT count(*) FROM "{prefix}sub_session_refs" WHERE session_id = $1
