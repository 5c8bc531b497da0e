-- A page of entries of one session, and how many match in all; a row without a body if the page is empty.
-- $1–$4 as in _usage_wanted.sql, $5 number of entries, $6 how many to leave out first, $7 session id, $8 first step, $9 last step, $10 agent type; null means all
WITH wanted AS NOT MATERIALIZED (
    SELECT u."timestamp", u.id, u.body FROM "{prefix}usage_entries" AS u
    -- rule: stores.usage.UsageFilter.matches
    WHERE u.session_id = $7 AND u.step_count >= coalesce($8::bigint, 0)
        AND u.step_count <= coalesce($9::bigint, 9223372036854775807)
        AND ($10::text IS NULL OR u.agent_type = $10)
        AND {include:usage_wanted}
), page AS (
    -- rule: stores.usage.select_entries
    SELECT * FROM wanted ORDER BY "timestamp", id LIMIT $5::bigint OFFSET $6::bigint
)
SELECT counted.total, page.body FROM (SELECT count(*) AS total FROM wanted) AS counted LEFT JOIN page ON TRUE
ORDER BY page."timestamp", page.id
