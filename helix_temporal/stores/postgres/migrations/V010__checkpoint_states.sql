-- Why: lists of checkpoints stay light without their states; calls past their deadline are found by an index; what
-- a session's thread must still be told is kept until it was.  Phase: expand.  Runs inside the migration
-- transaction.

CREATE TABLE "{prefix}checkpoint_states" (
    session_id TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    seq        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, id)
);

CREATE TABLE "{prefix}thread_orders" (
    session_id TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    body       BYTEA NOT NULL,
    PRIMARY KEY (session_id, key)
);

ALTER TABLE "{prefix}states" ADD COLUMN due_at BIGINT;
CREATE INDEX "{prefix}states_due" ON "{prefix}states" (due_at, session_id) WHERE due_at IS NOT NULL;
