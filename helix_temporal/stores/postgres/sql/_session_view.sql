-- $1 session, keys: $2 checkpoints, $3 runs, $4 stops, $5 refs, $6 operations, $7 checkpoint states, $8 thread orders,
-- groups: $9 steps, $10 staged; $11 kinds of which all are wanted, $12 kinds of which the newest is.
SELECT 'state' AS kind, '' AS key, '' AS grp, 0::bigint AS ord, s.body, s.rev, s.max_epoch, s.deleted AS gone, {now} AS now
FROM (SELECT 1) AS one LEFT JOIN "{prefix}states" AS s ON s.session_id = $1
UNION ALL SELECT 'checkpoint', id, '', seq, body, 0, 0, false, 0 FROM "{prefix}checkpoints"
    WHERE session_id = $1 AND id = ANY ($2::text[])
UNION ALL SELECT 'run', run_id, '', turn, body, 0, 0, false, 0 FROM "{prefix}runs"
    WHERE session_id = $1 AND run_id = ANY ($3::text[])
UNION ALL SELECT 'stop', run_id, '', 0, body, 0, 0, false, 0 FROM "{prefix}stop_requests"
    WHERE session_id = $1 AND run_id = ANY ($4::text[])
UNION ALL SELECT 'ref', sub_session_id, '', seq, body, 0, 0, false, 0 FROM "{prefix}sub_session_refs"
    WHERE session_id = $1 AND sub_session_id = ANY ($5::text[])
UNION ALL SELECT 'operation', op_id, '', created_at, body, 0, 0, false, 0 FROM "{prefix}ops"
    WHERE session_id = $1 AND op_id = ANY ($6::text[])
UNION ALL SELECT 'checkpoint_state', id, '', seq, body, 0, 0, false, 0 FROM "{prefix}checkpoint_states"
    WHERE session_id = $1 AND id = ANY ($7::text[])
UNION ALL SELECT 'thread', key, '', 0, body, 0, 0, false, 0 FROM "{prefix}thread_orders"
    WHERE session_id = $1 AND key = ANY ($8::text[])
UNION ALL SELECT 'step', run_id, step_id, 0, body, 0, 0, false, 0 FROM "{prefix}closed_steps"
    WHERE session_id = $1 AND step_id = ANY ($9::text[])
UNION ALL SELECT 'staged', tool_call_id, step_id, seq, body, 0, 0, false, 0 FROM "{prefix}staging"
    WHERE session_id = $1 AND step_id = ANY ($10::text[])
UNION ALL SELECT 'checkpoint', id, '', seq, body, 0, 0, false, 0 FROM "{prefix}checkpoints"
    WHERE 'checkpoint' = ANY ($11::text[]) AND session_id = $1
UNION ALL SELECT 'run', run_id, '', turn, body, 0, 0, false, 0 FROM "{prefix}runs"
    WHERE 'run' = ANY ($11::text[]) AND session_id = $1
UNION ALL SELECT 'stop', run_id, '', 0, body, 0, 0, false, 0 FROM "{prefix}stop_requests"
    WHERE 'stop' = ANY ($11::text[]) AND session_id = $1
UNION ALL SELECT 'ref', sub_session_id, '', seq, body, 0, 0, false, 0 FROM "{prefix}sub_session_refs"
    WHERE 'ref' = ANY ($11::text[]) AND session_id = $1
UNION ALL SELECT 'operation', op_id, '', created_at, body, 0, 0, false, 0 FROM "{prefix}ops"
    WHERE 'operation' = ANY ($11::text[]) AND session_id = $1
UNION ALL SELECT 'thread', key, '', 0, body, 0, 0, false, 0 FROM "{prefix}thread_orders"
    WHERE 'thread' = ANY ($11::text[]) AND session_id = $1
UNION ALL (SELECT 'checkpoint_state', id, '', seq, body, 0, 0, false, 0 FROM "{prefix}checkpoint_states"
    WHERE 'checkpoint_state' = ANY ($12::text[]) AND session_id = $1 ORDER BY seq DESC, id DESC LIMIT 1)
UNION ALL (SELECT 'checkpoint', id, '', seq, body, 0, 0, false, 0 FROM "{prefix}checkpoints"
    WHERE 'checkpoint' = ANY ($12::text[]) AND session_id = $1 ORDER BY seq DESC, id DESC LIMIT 1)
UNION ALL (SELECT 'run', run_id, '', turn, body, 0, 0, false, 0 FROM "{prefix}runs"
    WHERE 'run' = ANY ($12::text[]) AND session_id = $1 ORDER BY turn DESC, run_id DESC LIMIT 1)
UNION ALL (SELECT 'ref', sub_session_id, '', seq, body, 0, 0, false, 0 FROM "{prefix}sub_session_refs"
    WHERE 'ref' = ANY ($12::text[]) AND session_id = $1 ORDER BY seq DESC, sub_session_id DESC LIMIT 1)
