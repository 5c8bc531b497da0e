-- Why: a sub-session may live in another deployment.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "{prefix}sub_session_refs" ADD COLUMN remote_json JSONB;
