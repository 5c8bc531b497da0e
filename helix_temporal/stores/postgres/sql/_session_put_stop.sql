-- $1 keys, $2 groups, $3 orders, $4 bodies.
INSERT INTO "{prefix}stop_requests" AS t (session_id, run_id, body)
SELECT g.session_id, u.key, u.body
FROM guard AS g, unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS u (key, grp, ord, body)
ON CONFLICT (session_id, run_id) DO UPDATE SET body = excluded.body
