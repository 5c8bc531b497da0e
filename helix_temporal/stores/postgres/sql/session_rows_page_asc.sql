-- A page of a kind; kind <> '' leads to the index by order.
-- $1 session, $2 kind, $3 how many, $4 and $5 beyond this order and key, or null.
-- rule: stores.sessions.operations.page_rows
SELECT grp, key, ord, body FROM "{prefix}session_rows"
WHERE session_id = $1 AND kind = $2 AND kind <> '' AND ($4::bigint IS NULL OR (ord, key) > ($4::bigint, $5::text))
ORDER BY ord asc, key asc LIMIT $3
