-- What a commit does to records, once guard has its row.  Records of a group that is cleared and that are put again
-- stay: one statement may touch a row once only.  Each part finds its rows by the primary key.
-- Arrays stand in a SELECT as in _session_view.
-- $4 kinds, $5 groups, $6 keys of records to remove, none of which is put; $7 kinds, $8 groups to clear;
-- $9 kinds, $10 groups, $11 keys, $12 orders, $13 bodies of records to put, each once.
removed AS (
    DELETE FROM "{prefix}records" AS r
    USING guard AS g, unnest((SELECT $4::text[]), (SELECT $5::text[]), (SELECT $6::text[])) AS w (kind, grp, key)
    WHERE r.session_id = g.session_id AND r.kind = w.kind AND r.grp = w.grp AND r.key = w.key
), cleared AS (
    DELETE FROM "{prefix}records" AS r
    USING guard AS g, unnest((SELECT $7::text[]), (SELECT $8::text[])) AS w (kind, grp)
    WHERE r.session_id = g.session_id AND r.kind = w.kind AND r.grp = w.grp
        AND (r.kind, r.grp, r.key) NOT IN (
            SELECT * FROM unnest((SELECT $9::text[]), (SELECT $10::text[]), (SELECT $11::text[]))
        )
), put AS (
    INSERT INTO "{prefix}records" AS r (session_id, kind, grp, key, ord, body)
    SELECT g.session_id, p.*
    FROM guard AS g, unnest(
        (SELECT $9::text[]), (SELECT $10::text[]), (SELECT $11::text[]), (SELECT $12::bigint[]), (SELECT $13::bytea[])
    ) AS p
    ON CONFLICT (session_id, kind, grp, key) DO UPDATE SET ord = excluded.ord, body = excluded.body
)
