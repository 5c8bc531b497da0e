-- Ends a lease; no row if the token holds nothing.  The row stays, and with it the token.
-- $1 key, $2 token
-- rule: stores.locks.release_lease
UPDATE "{prefix}locks" AS l SET expires_at = 0
WHERE l.key = $1 AND l.fencing_token = $2 AND {include:lock_held}
RETURNING 1
