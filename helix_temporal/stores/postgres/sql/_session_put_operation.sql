-- $1 keys, $2 groups, $3 orders, $4 bodies.
INSERT INTO "{prefix}ops" AS t (session_id, op_id, created_at, body)
SELECT g.session_id, u.key, u.ord, u.body
FROM guard AS g, unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS u (key, grp, ord, body)
ON CONFLICT (session_id, op_id) DO UPDATE SET created_at = excluded.created_at, body = excluded.body
