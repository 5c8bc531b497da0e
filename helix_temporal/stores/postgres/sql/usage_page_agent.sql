-- A page of entries of one agent type, and how many match in all; a row without a body if the page is empty.
-- $1–$4 as in _usage_wanted.sql, $5 number of entries, $6 how many to leave out first, $7 agent type
WITH wanted AS NOT MATERIALIZED (
    SELECT u."timestamp", u.id, u.body FROM "{prefix}usage_entries" AS u
    -- rule: stores.usage.UsageFilter.matches
    WHERE u.agent_type = $7
        AND {include:usage_wanted}
), page AS (
    -- rule: stores.usage.select_entries
    SELECT * FROM wanted ORDER BY "timestamp", id LIMIT $5::bigint OFFSET $6::bigint
)
SELECT counted.total, page.body FROM (SELECT count(*) AS total FROM wanted) AS counted LEFT JOIN page ON TRUE
ORDER BY page."timestamp", page.id
