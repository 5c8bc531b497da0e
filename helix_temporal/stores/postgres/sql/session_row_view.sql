-- A session, and one of its rows or none.  What most reads want: _session_view.sql takes several times as long to plan.
-- $1 session; $2 kind, $3 group and $4 key of the row, or null.
-- rule: stores.sessions.operations.select_rows
SELECT s.body AS state, s.rev, s.max_epoch, s.deleted AS gone, {now} AS now, r.kind, r.grp, r.key, r.ord, r.body
FROM (SELECT 1) AS one
    LEFT JOIN "{prefix}states" AS s ON s.session_id = $1
    LEFT JOIN "{prefix}session_rows" AS r ON r.session_id = $1 AND r.kind = $2 AND r.grp = $3 AND r.key = $4
