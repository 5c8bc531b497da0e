-- The header, the id of the message before a position and the messages from there on.
-- $1 thread id, $2 position, $3 number of messages
SELECT {include:header}, place.id AS id_before, m.kinds, m.ids, m.bodies
FROM "{prefix}threads" AS t
    CROSS JOIN LATERAL (
        -- rule: stores.protocols.hot.HotSnapshot.id_before
        SELECT CASE
            WHEN $2::bigint = t.base THEN t.base_id
            WHEN $2::bigint = t.head THEN t.last_id
            WHEN $2::bigint > t.base AND $2::bigint < t.head THEN (
                SELECT m.id FROM "{prefix}messages" AS m WHERE m.thread_id = $1 AND m.position = $2::bigint - 1
            )
        END AS id
    ) AS place
    CROSS JOIN LATERAL (
        SELECT array_agg(m.kind ORDER BY m.position) AS kinds, array_agg(m.id ORDER BY m.position) AS ids,
            array_agg(m.body ORDER BY m.position) AS bodies
        FROM "{prefix}messages" AS m
        WHERE m.thread_id = $1 AND m.position >= $2::bigint AND m.position < $2::bigint + $3::bigint
    ) AS m
WHERE t.thread_id = $1 AND {include:alive}
