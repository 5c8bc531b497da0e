-- Why: answers arrive at the root of a tree of sessions and are routed from there.  Phase: expand.  Runs inside
-- the migration transaction.

ALTER TABLE "{prefix}states" ADD COLUMN root_session_id TEXT COLLATE "C";
ALTER TABLE "{prefix}states" ADD COLUMN client_tool_call_ownership JSONB;
CREATE INDEX "{prefix}states_root" ON "{prefix}states" (root_session_id) WHERE root_session_id IS NOT NULL;
