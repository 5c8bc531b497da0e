SELECT count(*) FROM "{prefix}thread_orders" WHERE session_id = $1
