-- $1 keys to remove, $2 their groups, $3 groups to clear, $4 keys to keep, $5 their groups.
DELETE FROM "{prefix}runs" AS t USING guard AS g
WHERE t.session_id = g.session_id
    AND (('', t.run_id) IN (SELECT * FROM unnest($2::text[], $1::text[])) OR '' = ANY ($3::text[]))
    AND NOT ('', t.run_id) IN (SELECT * FROM unnest($5::text[], $4::text[]))
