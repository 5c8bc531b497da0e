-- As session_row_view.sql, with the header of the session's thread.
-- rule: stores.sessions.operations.select_rows
SELECT s.body AS state, s.rev, s.max_epoch, s.deleted AS gone, {now} AS now, r.kind, r.grp, r.key, r.ord, r.body,
    {include:header}
FROM (SELECT 1) AS one
    LEFT JOIN "{prefix}states" AS s ON s.session_id = $1
    LEFT JOIN "{prefix}session_rows" AS r ON r.session_id = $1 AND r.kind = $2 AND r.grp = $3 AND r.key = $4
    LEFT JOIN "{prefix}threads" AS t ON t.thread_id = $1 AND {include:alive}
