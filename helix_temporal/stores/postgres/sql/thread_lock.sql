-- Locks the header until the transaction ends.  alive: it has not expired.
-- $1 thread id
SELECT {include:header}, t.expires_at, {include:alive} AS alive, {now} AS now
FROM "{prefix}threads" AS t WHERE t.thread_id = $1 FOR UPDATE
