-- Changes a stream's status if it is still what was seen, and writes a chunk that all before it make room for.
-- $1 stream_id, $2 made, $3 revision, $4 last (null for any), $5 fence, $6 status, $7 facts, $8 chunk or null,
-- $9 its sequence or null, $10 ttl in ms
WITH head AS (
    UPDATE "{prefix}streams" s SET
        status = $6,
        facts = $7,
        fence = $5,
        revision = s.revision + 1,
        last = coalesce($9::bigint, s.last),
        first = coalesce($9::bigint, s.first),
        updated_at = {now},
        expires_at = {now} + $10::bigint
    -- rule: stores.streams.rules.head_after_change
    WHERE s.stream_id = $1 AND s.made = $2 AND s.revision = $3 AND ($4::bigint IS NULL OR s.last = $4::bigint)
        AND coalesce(s.fence, 0) <= coalesce($5::bigint, 0)
    RETURNING s.last
-- rule: stores.streams.rules.StreamLog.change_status
), dropped AS (
    DELETE FROM "{prefix}stream_chunks" c USING head
    WHERE c.made = $2 AND $8::bytea IS NOT NULL AND c.sequence < head.last
), forgotten AS (
    DELETE FROM "{prefix}stream_keys" k USING head WHERE k.made = $2 AND $8::bytea IS NOT NULL
), written AS (
    INSERT INTO "{prefix}stream_chunks" (made, sequence, run_id, written_at, body)
    SELECT $2, head.last, '', {now}, $8 FROM head WHERE $8::bytea IS NOT NULL
)
SELECT last FROM head
