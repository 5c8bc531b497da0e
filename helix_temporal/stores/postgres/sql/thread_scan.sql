-- Ids of threads in order, beyond one.
-- $1 the id, $2 number of ids
SELECT t.thread_id FROM "{prefix}threads" AS t
WHERE t.thread_id > $1 AND {include:alive}
ORDER BY t.thread_id LIMIT $2
