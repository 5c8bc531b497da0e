-- Everything of a deleted session but its row.
wipe1 AS (DELETE FROM "{prefix}checkpoints" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe2 AS (DELETE FROM "{prefix}closed_steps" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe3 AS (DELETE FROM "{prefix}staging" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe4 AS (DELETE FROM "{prefix}runs" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe5 AS (DELETE FROM "{prefix}stop_requests" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe6 AS (DELETE FROM "{prefix}sub_session_refs" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe7 AS (DELETE FROM "{prefix}ops" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe8 AS (DELETE FROM "{prefix}checkpoint_states" AS t USING guard AS g WHERE t.session_id = g.session_id),
wipe9 AS (DELETE FROM "{prefix}thread_orders" AS t USING guard AS g WHERE t.session_id = g.session_id)
