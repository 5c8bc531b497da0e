-- Why: sessions that wait for the next message, and why a run ended.  Phase: expand.  Runs inside the migration
-- transaction.

ALTER TABLE "{prefix}states" ADD COLUMN mode TEXT
    CONSTRAINT "{prefix}states_mode" CHECK (mode IN ('standard', 'persistent'));
ALTER TABLE "{prefix}runs" ADD COLUMN completion_reason TEXT;
