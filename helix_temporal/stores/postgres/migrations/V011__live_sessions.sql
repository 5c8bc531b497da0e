-- Why: lists count what they list, and a deleted session is in none: with these indexes no row is read for the
-- count of all sessions, nor of those of a time.  Phase: expand.  Runs inside the migration transaction.

CREATE INDEX "{prefix}states_live_updated" ON "{prefix}states" (updated_at, session_id) WHERE NOT deleted;
CREATE INDEX "{prefix}states_live_created" ON "{prefix}states" (created_at, session_id) WHERE NOT deleted;
DROP INDEX "{prefix}states_updated";
DROP INDEX "{prefix}states_created";
