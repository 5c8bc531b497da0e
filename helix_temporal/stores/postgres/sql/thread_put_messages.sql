-- Messages of a thread whose header is locked.
-- $1 thread id, $2 position of the first, $3 kinds, $4 ids, $5 bodies
INSERT INTO "{prefix}messages" (thread_id, position, kind, id, body)
SELECT $1, $2::bigint + m.at - 1, m.kind, m.id, m.body
FROM unnest($3::text[], $4::text[], $5::bytea[]) WITH ORDINALITY AS m (kind, id, body, at)
