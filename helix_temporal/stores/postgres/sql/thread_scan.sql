-- Threads in the order of their ids, beyond one: where they stand, and where they stood when they were archived.
-- $1 the id, $2 number of threads
SELECT t.thread_id, t.epoch, t.head, t.last_id, t.committed, t.slice_version, t.closed, t.archived_place
FROM "{prefix}threads" AS t
WHERE t.thread_id > $1 AND {include:alive}
ORDER BY t.thread_id LIMIT $2
