-- Makes a stream where there is none.
-- $1 stream_id, $2 made, $3 facts, $4 ttl in ms
INSERT INTO "{prefix}streams" (stream_id, made, status, first, last, revision, facts, created_at, updated_at, expires_at)
VALUES ($1, $2, 'active', 1, 0, 0, $3, {now}, {now}, {now} + $4::bigint)
ON CONFLICT (stream_id) DO NOTHING
