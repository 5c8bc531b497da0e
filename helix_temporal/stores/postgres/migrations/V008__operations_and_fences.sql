-- Why: a repeated operation gets its first answer, and an old writer is refused.  Phase: expand.  Runs inside the
-- migration transaction.
-- rev counts every change of anything of the session; a deleted session keeps its row, rev and max_epoch.

ALTER TABLE "{prefix}states" ADD COLUMN rev BIGINT NOT NULL DEFAULT 0;
ALTER TABLE "{prefix}states" ADD COLUMN max_epoch BIGINT NOT NULL DEFAULT 0;
ALTER TABLE "{prefix}states" ADD COLUMN deleted BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE "{prefix}states" ADD COLUMN cleanup_pending BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX "{prefix}states_cleanup" ON "{prefix}states" (session_id) WHERE cleanup_pending;

CREATE TABLE "{prefix}ops" (
    session_id TEXT COLLATE "C" NOT NULL,
    op_id      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, op_id)
);
CREATE INDEX "{prefix}ops_created" ON "{prefix}ops" (created_at);

CREATE TABLE "{prefix}stop_requests" (
    session_id TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL,
    body       BYTEA NOT NULL,
    PRIMARY KEY (session_id, run_id)
);

-- Steps whose staged changes were promoted: nothing more may be staged into them.
CREATE TABLE "{prefix}closed_steps" (
    session_id TEXT COLLATE "C" NOT NULL,
    step_id    TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL,
    body       BYTEA NOT NULL,
    PRIMARY KEY (session_id, step_id, run_id)
);
