-- Why: suspended sessions run out.  The time has a column of its own: compared as text inside the JSON, times of
-- another number of digits would be missed.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "{prefix}states" ADD COLUMN suspension_context JSONB;
ALTER TABLE "{prefix}states" ADD COLUMN expires_at BIGINT;
CREATE INDEX "{prefix}states_expires" ON "{prefix}states" (expires_at, session_id) WHERE expires_at IS NOT NULL;
