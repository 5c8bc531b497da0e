-- Where chunks of these dedup keys stand.
-- $1 made, $2 keys
SELECT k.key, k.sequence FROM "{prefix}stream_keys" k WHERE k.made = $1 AND k.key = ANY($2::text[])
