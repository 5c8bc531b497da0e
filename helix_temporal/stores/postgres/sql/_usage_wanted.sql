-- Which entries.  $1 kinds, $2 run id, $3 from ms on, $4 up to ms; null means all.
-- rule: stores.usage.UsageFilter.matches
($1::text[] IS NULL OR u.kind = ANY ($1)) AND ($2::text IS NULL OR u.run_id = $2)
    AND u."timestamp" >= coalesce($3::bigint, 0) AND u."timestamp" < coalesce($4::bigint, 9223372036854775807)
