-- Groups of a kind; one look into the primary key for each group, and none at the other rows of it.
-- $1 session, $2 kind, $3 from this group on, $4 before this one, $5 how many.
WITH RECURSIVE found AS (
    (
        SELECT r.grp FROM "{prefix}session_rows" AS r
        WHERE r.session_id = $1 AND r.kind = $2 AND r.grp >= $3 AND r.grp < $4 ORDER BY r.grp LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT r.grp FROM "{prefix}session_rows" AS r
        WHERE r.session_id = $1 AND r.kind = $2 AND r.grp > f.grp AND r.grp < $4 ORDER BY r.grp LIMIT 1
    )
    FROM found AS f WHERE f.grp IS NOT NULL
)
SELECT f.grp FROM found AS f WHERE f.grp IS NOT NULL LIMIT $5
