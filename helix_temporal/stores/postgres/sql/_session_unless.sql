-- Nothing of these is there: $1 kinds, $2 groups, $3 keys of single rows, $4 kinds, $5 groups.
-- An array stands in a SELECT as in _session_view.
-- rule: stores.sessions.operations.apply_commit
NOT EXISTS (
        SELECT FROM unnest((SELECT $1::text[]), $2::text[], $3::text[]) AS w (kind, grp, key), LATERAL (
            SELECT FROM "{prefix}session_rows" AS r
            WHERE r.session_id = s.session_id AND r.kind = w.kind AND r.grp = w.grp AND r.key = w.key LIMIT 1
        ) AS found
    ) AND NOT EXISTS (
        SELECT FROM unnest((SELECT $4::text[]), $5::text[]) AS w (kind, grp), LATERAL (
            SELECT FROM "{prefix}session_rows" AS r
            WHERE r.session_id = s.session_id AND r.kind = w.kind AND r.grp = w.grp LIMIT 1
        ) AS found
    )
