-- The head of a stream that has not expired, held until the end of the transaction.
-- $1 stream_id
SELECT {now} AS now, s.made, s.status, s.first, s.last, s.revision, s.fence, s.facts, s.created_at, s.updated_at
FROM "{prefix}streams" s WHERE s.stream_id = $1 AND {include:stream_there} FOR UPDATE
