-- $1 to $11 see _session_matches, $12 and $13 beyond this time and id, or null; $14 how many, $15 how many to skip,
-- $16 see _session_shown.
-- rule: stores.sessions.operations.list_sessions
SELECT {include:session_shown+15}
FROM "{prefix}states"
WHERE {include:session_matches}
    AND ($12::bigint IS NULL OR (created_at, session_id) < ($12::bigint, $13::text))
ORDER BY created_at desc, session_id desc LIMIT $14 OFFSET $15
