-- Takes a lease that is free, has ended, or is the owner's; no row if another holds it.
-- $1 key, $2 owner, $3 claim, $4 ms that it lasts
-- A repeat of the claim that holds it keeps its token; anything else gets a higher one.  Expressions on l see
-- the row as it is once it is locked.
-- rule: stores.locks.take_lease
INSERT INTO "{prefix}locks" AS l (key, owner, claim, fencing_token, ttl_ms, acquired_at, expires_at)
VALUES ($1, $2, $3, {include:microseconds}, $4::bigint, {include:microseconds} / 1000,
    -- rule: stores.locks._lease_end
    ({include:microseconds} + 999) / 1000 + $4::bigint)
ON CONFLICT (key) DO UPDATE SET
    owner = excluded.owner,
    claim = excluded.claim,
    fencing_token = CASE
        WHEN {include:lock_same} THEN l.fencing_token
        ELSE greatest({include:microseconds}, l.fencing_token + 1) END,
    ttl_ms = excluded.ttl_ms,
    acquired_at = CASE WHEN {include:lock_same} THEN l.acquired_at ELSE {include:microseconds} / 1000 END,
    expires_at = greatest(
        CASE WHEN {include:lock_same} THEN l.expires_at ELSE 0 END,
        ({include:microseconds} + 999) / 1000 + excluded.ttl_ms)
WHERE l.owner = excluded.owner OR NOT {include:lock_held}
RETURNING l.fencing_token, l.acquired_at, l.expires_at
