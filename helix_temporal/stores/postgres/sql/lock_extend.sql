-- Lets a lease last from now on; no row if the token holds nothing.
-- $1 key, $2 token, $3 ms, or null for as long as it was taken for
-- rule: stores.locks.extend_lease
UPDATE "{prefix}locks" AS l SET
    ttl_ms = coalesce($3::bigint, l.ttl_ms),
    -- rule: stores.locks._lease_end
    expires_at = ({include:microseconds} + 999) / 1000 + coalesce($3::bigint, l.ttl_ms)
WHERE l.key = $1 AND l.fencing_token = $2 AND {include:lock_held}
RETURNING 1
