-- Appends what is new of a batch; no row if nothing may be appended, one without n if the batch is empty.
-- $1 stream_id, $2 made, $3 fence, $4 run_id, $5 dedup keys (or empty), $6 bodies, $7 most chunks, $8 ttl in ms
-- A key that somebody else adds meanwhile violates the key's uniqueness: the statement is run again.  Old chunks go a
-- hundred at a time, since each look for them passes by those that went before.
-- rule: stores.streams.rules.StreamLog.append_batch
WITH given AS (
    SELECT key, body, n FROM unnest($5::text[], $6::bytea[]) WITH ORDINALITY AS g(key, body, n)
), known AS (
    SELECT k.key, k.sequence FROM "{prefix}stream_keys" k WHERE k.made = $2 AND k.key = ANY($5::text[])
), fresh AS (
    SELECT key, body, n, row_number() OVER (ORDER BY n) AS at, count(*) OVER () AS total
    FROM given WHERE key NOT IN (SELECT key FROM known)
), size AS (
    SELECT count(*) AS total FROM fresh
), head AS (
    UPDATE "{prefix}streams" s SET
        last = s.last + size.total,
        -- rule: stores.streams.rules.StreamLog._trim_chunks
        first = CASE WHEN $7::bigint = 0 THEN s.first
            ELSE greatest(s.first, s.last + size.total - $7::bigint + 1) END,
        fence = coalesce($3::bigint, s.fence),
        updated_at = {now},
        expires_at = {now} + $8::bigint
    FROM size
    -- rule: stores.streams.rules.admit_batch
    WHERE s.stream_id = $1 AND s.made = $2 AND s.status = 'active' AND {include:stream_there}
        AND ($3::bigint IS NULL OR s.fence IS NULL OR s.fence <= $3::bigint)
    RETURNING s.first, s.last - size.total AS before, size.total
), written AS (
    INSERT INTO "{prefix}stream_chunks" (made, sequence, run_id, written_at, body)
    SELECT $2, head.before + fresh.at, $4, {now}, fresh.body FROM fresh, head
), named AS (
    INSERT INTO "{prefix}stream_keys" (made, key, sequence)
    SELECT $2, fresh.key, head.before + fresh.at FROM fresh, head WHERE fresh.key <> ''
), trimmed AS (
    DELETE FROM "{prefix}stream_chunks" c USING head
    WHERE c.made = $2 AND c.sequence < CASE
        WHEN head.first / 100 > (head.first - head.total) / 100 THEN head.first ELSE 0 END
)
SELECT given.n, head.before + head.total AS last, coalesce(known.sequence, head.before + fresh.at) AS sequence
FROM head LEFT JOIN given ON true LEFT JOIN known ON known.key = given.key LEFT JOIN fresh ON fresh.n = given.n
ORDER BY given.n
