-- $1 keys, $2 groups, $3 orders, $4 bodies.
INSERT INTO "{prefix}checkpoint_states" AS t (session_id, id, seq, body)
SELECT g.session_id, u.key, u.ord, u.body
FROM guard AS g, unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS u (key, grp, ord, body)
ON CONFLICT (session_id, id) DO UPDATE SET seq = excluded.seq, body = excluded.body
