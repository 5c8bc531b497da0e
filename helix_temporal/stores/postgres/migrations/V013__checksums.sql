-- Why: damage below the database is found, and never read as content.  Bodies end with a checksum that the client
-- makes; the header of a thread has numbers that only the server knows, so the server makes its checksum.  Phase:
-- expand.  Runs inside the migration transaction.  Rows written before have none and are refused as damaged.

ALTER TABLE "{prefix}threads" ADD COLUMN checksum BIGINT GENERATED ALWAYS AS (
    hashtextextended((thread_id || ' ' || epoch::text || ' ' || owner || ' ' || closed::text || ' ' || head::text
        || ' ' || last_id || ' ' || committed::text || ' ' || base::text || ' ' || base_id || ' '
        || slice_version::text || ' ' || adapter || ' ' || size::text || ' ' || base_size::text || ' '
        || archived::text || ' ' || archived_size::text || ' ' || unarchived_since::text || ' ' || deleted::text
        || ' ' || born::text || ' ' || cut::text || ' ' || origin) COLLATE "C", 0)
) STORED;
