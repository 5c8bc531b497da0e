-- The header and the messages of a range, from its start on, as many as fit and at least one; and how many there are.
-- $1 thread id, $2 start, $3 stop, $4 number of messages, $5 packed bytes
SELECT {include:header}, m.kinds, m.ids, m.bodies, m.there
FROM "{prefix}threads" AS t
    CROSS JOIN LATERAL (
        -- rule: stores.threads.operations.select_page
        SELECT array_agg(m.kind ORDER BY m.position) FILTER (WHERE m.fits) AS kinds,
            array_agg(m.id ORDER BY m.position) FILTER (WHERE m.fits) AS ids,
            array_agg(m.body ORDER BY m.position) FILTER (WHERE m.fits) AS bodies, count(*) AS there
        FROM (
            SELECT m.position, m.kind, m.id, m.body,
                row_number() OVER side = 1 OR sum({include:size}) OVER side <= $5::bigint AS fits
            FROM "{prefix}messages" AS m
            WHERE m.thread_id = $1 AND m.position >= GREATEST($2::bigint, t.base)
                AND m.position < LEAST($3::bigint, t.head, GREATEST($2::bigint, t.base) + GREATEST($4::bigint, 1))
            WINDOW side AS (ORDER BY m.position ROWS UNBOUNDED PRECEDING)
        ) AS m
    ) AS m
WHERE t.thread_id = $1 AND {include:alive}
