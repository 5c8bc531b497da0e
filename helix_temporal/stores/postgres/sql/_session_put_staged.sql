-- $1 keys, $2 groups, $3 orders, $4 bodies.
INSERT INTO "{prefix}staging" AS t (session_id, tool_call_id, step_id, seq, body)
SELECT g.session_id, u.key, u.grp, u.ord, u.body
FROM guard AS g, unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS u (key, grp, ord, body)
ON CONFLICT (session_id, step_id, tool_call_id) DO UPDATE SET seq = excluded.seq, body = excluded.body
