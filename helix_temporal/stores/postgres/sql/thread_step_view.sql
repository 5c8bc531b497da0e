-- What a step needs before it calls the model: the messages after its head, the newest ones before it as far as
-- they fit, the ids before those, and the id just before the head.
-- $1 thread id, $2 position of the head, $3 number of messages after it, $4 number and $5 packed bytes of those
-- before it, $6 number of ids
-- Positions have no gaps, so ranges stand for limits: a planner that knows only a thread's average length would
-- read and sort all of it for a limit.
-- rule: stores.threads.operations.step_view
WITH t AS (
    SELECT t.*, LEAST(GREATEST($2::bigint, t.base), t.head) AS at
    FROM "{prefix}threads" AS t WHERE t.thread_id = $1 AND {include:alive}
), window_before AS (
    SELECT m.position, m.kind, m.id, m.body,
        row_number() OVER newest = 1 OR sum({include:size}) OVER newest <= $5::bigint AS fits
    FROM t CROSS JOIN LATERAL (
        SELECT m.position, m.kind, m.id, m.body
        FROM "{prefix}messages" AS m
        WHERE m.thread_id = $1
            AND m.position >= GREATEST(t.base, t.at - GREATEST($4::bigint, 1)) AND m.position < t.at
    ) AS m
    WINDOW newest AS (ORDER BY m.position DESC)
), before AS (
    SELECT array_agg(m.kind ORDER BY m.position) FILTER (WHERE m.fits) AS kinds,
        array_agg(m.id ORDER BY m.position) FILTER (WHERE m.fits) AS ids,
        array_agg(m.body ORDER BY m.position) FILTER (WHERE m.fits) AS bodies,
        count(*) FILTER (WHERE m.fits) AS count, count(*) AS there
    FROM window_before AS m
)
SELECT {include:header},
    before.kinds AS before_kinds, before.ids AS before_ids, before.bodies AS before_bodies, before.there AS before_there,
    later.kinds AS after_kinds, later.ids AS after_ids, later.bodies AS after_bodies, earlier.ids AS earlier_ids,
    -- rule: stores.protocols.hot.HotSnapshot.id_before
    CASE
        WHEN $2::bigint = t.base THEN t.base_id
        WHEN $2::bigint = t.head THEN t.last_id
        WHEN $2::bigint > t.base AND $2::bigint < t.head THEN (
            SELECT m.id FROM "{prefix}messages" AS m WHERE m.thread_id = $1 AND m.position = $2::bigint - 1
        )
    END AS id_before
FROM t CROSS JOIN before
    CROSS JOIN LATERAL (
        SELECT array_agg(m.kind ORDER BY m.position) AS kinds, array_agg(m.id ORDER BY m.position) AS ids,
            array_agg(m.body ORDER BY m.position) AS bodies
        FROM "{prefix}messages" AS m
        WHERE t.at = $2::bigint AND m.thread_id = $1
            AND m.position >= $2::bigint AND m.position < $2::bigint + $3::bigint
    ) AS later
    CROSS JOIN LATERAL (
        SELECT array_agg(m.id ORDER BY m.position) AS ids
        FROM "{prefix}messages" AS m
        WHERE m.thread_id = $1
            AND m.position >= GREATEST(t.base, t.at - GREATEST($6::bigint, before.count))
            AND m.position < t.at - before.count
    ) AS earlier
