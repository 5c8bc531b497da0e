-- Why: tool calls that a client has to answer.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "{prefix}states" ADD COLUMN pending_client_tool_calls JSONB;
