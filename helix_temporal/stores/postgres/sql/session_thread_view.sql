-- As session_view.sql, with the header of the session's thread beside the state.
SELECT v.*, {include:header}
FROM (
{include:session_view}
) AS v
LEFT JOIN "{prefix}threads" AS t ON v.kind = 'state' AND t.thread_id = $1 AND {include:alive}
