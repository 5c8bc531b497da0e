-- The header and all messages from a position on.
-- $1 thread id, $2 position, or -1 for one before what is known to be archived
SELECT {include:header}, place.first, m.kinds, m.ids, m.bodies
FROM "{prefix}threads" AS t
    CROSS JOIN LATERAL (
        -- rule: stores.threads.operations.snapshot_start
        SELECT LEAST(
            GREATEST(CASE WHEN $2::bigint = -1 THEN t.archived - 1 ELSE $2::bigint END, t.base), t.head
        ) AS first
    ) AS place
    CROSS JOIN LATERAL (
        SELECT array_agg(m.kind ORDER BY m.position) AS kinds, array_agg(m.id ORDER BY m.position) AS ids,
            array_agg(m.body ORDER BY m.position) AS bodies
        FROM "{prefix}messages" AS m
        WHERE m.thread_id = $1 AND m.position >= place.first
    ) AS m
WHERE t.thread_id = $1 AND {include:alive}
