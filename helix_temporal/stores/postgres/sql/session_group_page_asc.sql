-- A page of a group by key, out of the primary key.
-- $1 session, $2 kind, $3 group, $4 how many, $5 beyond this key, or null.
SELECT grp, key, ord, body FROM "{prefix}session_rows"
WHERE session_id = $1 AND kind = $2 AND grp = $3 AND ($5::text IS NULL OR key > $5::text)
ORDER BY key asc LIMIT $4
