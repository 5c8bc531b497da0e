-- What a commit does to rows, once guard has found the session.  Rows of a group that is cleared and that are put again
-- stay: one statement may touch a row once only.  LATERAL and an array in a SELECT as in _session_view.
-- $4 kinds, $5 groups, $6 keys of rows to remove, none of which is put; $7 kinds, $8 groups to clear;
-- $9 kinds, $10 groups, $11 keys, $12 orders, $13 bodies of rows to put, each once.
-- rule: stores.sessions.operations.apply_commit
removed AS (
    DELETE FROM "{prefix}session_rows" AS r
    USING (
        SELECT g.session_id, w.*
        FROM guard AS g, unnest((SELECT $4::text[]), $5::text[], $6::text[]) AS w (kind, grp, key)
        UNION ALL
        SELECT g.session_id, found.*
        FROM guard AS g, unnest((SELECT $7::text[]), $8::text[]) AS w (kind, grp), LATERAL (
            SELECT i.kind, i.grp, i.key FROM "{prefix}session_rows" AS i
            WHERE i.session_id = g.session_id AND i.kind = w.kind AND i.grp = w.grp
                AND (i.kind, i.grp, i.key) NOT IN (SELECT * FROM unnest((SELECT $9::text[]), $10::text[], $11::text[]))
            OFFSET 0
        ) AS found
    ) AS gone
    WHERE r.session_id = gone.session_id AND r.kind = gone.kind AND r.grp = gone.grp AND r.key = gone.key
), put AS (
    INSERT INTO "{prefix}session_rows" AS r (session_id, kind, grp, key, ord, body)
    SELECT g.session_id, p.*
    FROM guard AS g, unnest((SELECT $9::text[]), $10::text[], $11::text[], $12::bigint[], $13::bytea[]) AS p
    ON CONFLICT (session_id, kind, grp, key) DO UPDATE SET ord = excluded.ord, body = excluded.body
)
