-- Entries by their keys.
-- $1 keys: session and entry id, as usage_add has them
SELECT body FROM "{prefix}usage_entries" WHERE id = ANY ($1::text[])
