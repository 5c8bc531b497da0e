-- What a list tells of a session: its summary, or, if $1, the state that it is part of.  A session of an older version has
-- no summary until it is next written.
session_id, created_at, updated_at, CASE WHEN $1::boolean THEN body ELSE coalesce(summary, body) END AS shown,
    ($1::boolean OR summary IS NULL) AS whole
