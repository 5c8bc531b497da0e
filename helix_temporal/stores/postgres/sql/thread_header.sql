-- The header alone.
-- $1 thread id
SELECT {include:header} FROM "{prefix}threads" AS t WHERE t.thread_id = $1 AND {include:alive}
