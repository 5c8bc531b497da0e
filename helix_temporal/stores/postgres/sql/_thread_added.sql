-- Inserts the step's messages if thread_moved is there.
-- $3 position of the step's head, $7 kinds, $8 ids, $9 bodies
INSERT INTO "{prefix}messages" (thread_id, position, kind, id, body)
SELECT t.thread_id, $3 + m.at - 1, m.kind, m.id, m.body
FROM thread_moved AS t,
    unnest($7::text[], $8::text[], $9::bytea[]) WITH ORDINALITY AS m (kind, id, body, at)
