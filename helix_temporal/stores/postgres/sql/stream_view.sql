-- A stream's head, and chunks after a sequence; the facts are in the first row only, since they may be large.
-- $1 stream_id, $2 after which sequence, $3 how many
SELECT {now} AS now, s.made, s.status, s.first, s.last, s.revision, s.fence, s.created_at, s.updated_at,
    CASE WHEN coalesce(c.n, 1) = 1 THEN s.facts END AS facts, c.sequence, c.run_id, c.written_at, c.body
FROM "{prefix}streams" s LEFT JOIN LATERAL (
    SELECT k.*, row_number() OVER (ORDER BY k.sequence) AS n FROM "{prefix}stream_chunks" k
    -- rule: stores.streams.rules.StreamLog.chunks_after
    WHERE k.made = s.made AND k.sequence > greatest($2::bigint, s.first - 1) ORDER BY k.sequence LIMIT $3::bigint
) c ON true
WHERE s.stream_id = $1 AND {include:stream_there}
ORDER BY c.sequence
