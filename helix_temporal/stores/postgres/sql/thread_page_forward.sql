-- The header and the messages of a range, from its start on, as many as fit and at least one.
-- $1 thread id, $2 start, $3 stop, $4 number of messages, $5 packed bytes
SELECT {include:header}, m.kinds, m.ids, m.bodies
FROM "{prefix}threads" AS t
    CROSS JOIN LATERAL (
        SELECT array_agg(m.kind ORDER BY m.position) AS kinds, array_agg(m.id ORDER BY m.position) AS ids,
            array_agg(m.body ORDER BY m.position) AS bodies
        FROM (
            SELECT m.position, m.kind, m.id, m.body,
                row_number() OVER side AS n, sum({include:size}) OVER side AS bytes
            FROM "{prefix}messages" AS m
            WHERE m.thread_id = $1 AND m.position >= GREATEST($2::bigint, t.base)
                AND m.position < LEAST($3::bigint, t.head, GREATEST($2::bigint, t.base) + GREATEST($4::bigint, 1))
            WINDOW side AS (ORDER BY m.position ROWS UNBOUNDED PRECEDING)
        ) AS m
        WHERE m.n = 1 OR m.bytes <= $5::bigint
    ) AS m
WHERE t.thread_id = $1 AND {include:alive}
