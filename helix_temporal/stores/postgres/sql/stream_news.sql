-- How far streams are.
-- $1 their ids
SELECT s.stream_id, s.made, s.last, s.revision FROM "{prefix}streams" s WHERE s.stream_id = ANY($1::text[])
