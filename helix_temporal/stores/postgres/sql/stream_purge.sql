-- Removes streams that have expired; how many.
-- $1 stream_id (null for any), $2 at most so many
WITH gone AS (
    DELETE FROM "{prefix}streams" s WHERE s.stream_id IN (
        SELECT s.stream_id FROM "{prefix}streams" s
        WHERE ($1::text IS NULL OR s.stream_id = $1) AND NOT {include:stream_there} LIMIT $2 FOR UPDATE SKIP LOCKED
    ) RETURNING s.made
), chunks AS (
    DELETE FROM "{prefix}stream_chunks" c USING gone WHERE c.made = gone.made
), keys AS (
    DELETE FROM "{prefix}stream_keys" k USING gone WHERE k.made = gone.made
)
SELECT count(*) FROM gone
