-- A session, as the row of kind state, and those of its rows that are wanted; one may be there twice.
-- $1 session; $2 kinds, $3 groups, $4 keys of single rows; $5 kinds, $6 groups of which all are wanted; $7 kinds
-- of which the newest is; $8 kinds, $9 groups of which the one of the highest key is.  LATERAL with a LIMIT or OFFSET keeps the planner at one look into an index for each.
-- The first array of an unnest stands in a SELECT, so that the planner does not see its length. If it did, a plan for that length would look
-- cheaper than the general plan, which then would not be kept: planning each time costs more than the statement.
-- kind <> '' leads to the index by order.
-- rule: stores.sessions.operations.select_rows
SELECT 'state' AS kind, '' AS grp, '' AS key, 0::bigint AS ord, s.body, s.rev, s.max_epoch, s.deleted AS gone, {now} AS now
FROM (SELECT 1) AS one LEFT JOIN "{prefix}states" AS s ON s.session_id = $1
UNION ALL
SELECT found.*, 0, 0, false, 0
FROM unnest((SELECT $2::text[]), $3::text[], $4::text[]) AS w (kind, grp, key), LATERAL (
    SELECT r.kind, r.grp, r.key, r.ord, r.body FROM "{prefix}session_rows" AS r
    WHERE r.session_id = $1 AND r.kind = w.kind AND r.grp = w.grp AND r.key = w.key LIMIT 1
) AS found
UNION ALL
SELECT found.*, 0, 0, false, 0
FROM unnest((SELECT $5::text[]), $6::text[]) AS w (kind, grp), LATERAL (
    SELECT r.kind, r.grp, r.key, r.ord, r.body FROM "{prefix}session_rows" AS r
    WHERE r.session_id = $1 AND r.kind = w.kind AND r.grp = w.grp OFFSET 0
) AS found
UNION ALL
SELECT found.*, 0, 0, false, 0
FROM unnest((SELECT $7::text[])) AS w (kind), LATERAL (
    SELECT r.kind, r.grp, r.key, r.ord, r.body FROM "{prefix}session_rows" AS r
    WHERE r.session_id = $1 AND r.kind = w.kind AND r.kind <> '' ORDER BY r.ord DESC, r.key DESC LIMIT 1
) AS found
UNION ALL
SELECT found.*, 0, 0, false, 0
FROM unnest((SELECT $8::text[]), $9::text[]) AS w (kind, grp), LATERAL (
    SELECT r.kind, r.grp, r.key, r.ord, r.body FROM "{prefix}session_rows" AS r
    WHERE r.session_id = $1 AND r.kind = w.kind AND r.grp = w.grp ORDER BY r.key DESC LIMIT 1
) AS found
