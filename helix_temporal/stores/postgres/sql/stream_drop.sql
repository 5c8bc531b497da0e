-- Removes a stream; no row if there was none, one that says whether it had not expired.
-- $1 stream_id
WITH gone AS (
    DELETE FROM "{prefix}streams" s WHERE s.stream_id = $1 RETURNING s.made, {include:stream_there} AS there
), chunks AS (
    DELETE FROM "{prefix}stream_chunks" c USING gone WHERE c.made = gone.made
), keys AS (
    DELETE FROM "{prefix}stream_keys" k USING gone WHERE k.made = gone.made
)
SELECT there FROM gone
