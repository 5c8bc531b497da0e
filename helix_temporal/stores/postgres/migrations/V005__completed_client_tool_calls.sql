-- Why: an answer that comes twice is told from a second one.  Phase: expand.  Runs inside the migration
-- transaction.

ALTER TABLE "{prefix}states" ADD COLUMN completed_client_tool_calls JSONB;
