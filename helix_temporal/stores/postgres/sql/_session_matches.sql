-- What a list filters by, each or null: $1 user, $2 agent type, $3 statuses, $4 parent, $5 true for those without a
-- parent, $6 tags, $7 metadata, $8 and $9 created from and before, $10 and $11 updated from and before.  The planner
-- leaves out what is null, since it knows the arguments.
-- rule: stores.sessions.operations.matches_query
NOT deleted
    AND ($1::text IS NULL OR user_id = $1::text)
    AND ($2::text IS NULL OR agent_type = $2::text)
    AND ($3::text[] IS NULL OR status = ANY ($3::text[]))
    AND ($4::text IS NULL OR parent_session_id = $4::text)
    AND ($5::boolean IS NULL OR parent_session_id IS NULL)
    AND ($6::text[] IS NULL OR tags @> $6::text[])
    AND ($7::jsonb IS NULL OR metadata @> $7::jsonb)
    AND ($8::bigint IS NULL OR created_at >= $8::bigint)
    AND ($9::bigint IS NULL OR created_at < $9::bigint)
    AND ($10::bigint IS NULL OR updated_at >= $10::bigint)
    AND ($11::bigint IS NULL OR updated_at < $11::bigint)
