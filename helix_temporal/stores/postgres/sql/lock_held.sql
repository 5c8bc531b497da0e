-- Whether somebody holds the lock.
-- $1 key
SELECT EXISTS (SELECT FROM "{prefix}locks" AS l WHERE l.key = $1 AND {include:lock_held})
