-- name: lock_row
SELECT lease FROM locks WHERE key = :key

-- name: lock_put
INSERT INTO locks (key, lease) VALUES (:key, :lease) ON CONFLICT (key) DO UPDATE SET lease = excluded.lease
