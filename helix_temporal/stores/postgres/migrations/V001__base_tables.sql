-- Why: every table of a session and of its thread.  Phase: expand.  Runs inside the migration transaction.
-- A row is a document (body, bytes that no statement looks into) and the columns that are queried.  Times are
-- milliseconds since 1970.  Ids sort by code point in every database, as they do in the other stores.  seq, turn
-- and created_at are the order in which a session's records of one kind are listed.

CREATE TABLE "{prefix}states" (
    session_id        TEXT COLLATE "C" PRIMARY KEY,
    body              BYTEA   NOT NULL,
    version           BIGINT  NOT NULL,
    status            TEXT    NOT NULL,
    agent_type        TEXT    NOT NULL DEFAULT '',
    user_id           TEXT,
    parent_session_id TEXT COLLATE "C",
    tags              TEXT[]  NOT NULL DEFAULT '{}',
    metadata          JSONB   NOT NULL DEFAULT '{}',
    failure_reason    TEXT,
    step_count        BIGINT  NOT NULL DEFAULT 0,
    resume_count      BIGINT  NOT NULL DEFAULT 0,
    created_at        BIGINT  NOT NULL,
    updated_at        BIGINT  NOT NULL
);
CREATE INDEX "{prefix}states_updated" ON "{prefix}states" (updated_at, session_id);
CREATE INDEX "{prefix}states_created" ON "{prefix}states" (created_at, session_id);
CREATE INDEX "{prefix}states_agent" ON "{prefix}states" (agent_type, updated_at, session_id);
CREATE INDEX "{prefix}states_user" ON "{prefix}states" (user_id, updated_at, session_id);
CREATE INDEX "{prefix}states_status" ON "{prefix}states" (status, updated_at, session_id);
CREATE INDEX "{prefix}states_parent" ON "{prefix}states" (parent_session_id, updated_at, session_id)
    WHERE parent_session_id IS NOT NULL;
CREATE INDEX "{prefix}states_tags" ON "{prefix}states" USING gin (tags);
CREATE INDEX "{prefix}states_metadata" ON "{prefix}states" USING gin (metadata jsonb_path_ops);

-- The log of a thread; a session's main thread has the session's id.
CREATE TABLE "{prefix}messages" (
    thread_id TEXT COLLATE "C" NOT NULL,
    position  BIGINT NOT NULL,
    kind      TEXT   NOT NULL,
    id        TEXT   NOT NULL,
    body      BYTEA  NOT NULL,
    PRIMARY KEY (thread_id, position)
);

CREATE TABLE "{prefix}checkpoints" (
    session_id TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    run_id     TEXT   NOT NULL DEFAULT '',
    step_id    TEXT   NOT NULL DEFAULT '',
    seq        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, id)
);
CREATE INDEX "{prefix}checkpoints_seq" ON "{prefix}checkpoints" (session_id, seq);
CREATE INDEX "{prefix}checkpoints_step" ON "{prefix}checkpoints" (session_id, run_id, step_id);

CREATE TABLE "{prefix}staging" (
    session_id   TEXT COLLATE "C" NOT NULL,
    step_id      TEXT COLLATE "C" NOT NULL,
    tool_call_id TEXT COLLATE "C" NOT NULL,
    seq          BIGINT NOT NULL,
    body         BYTEA  NOT NULL,
    PRIMARY KEY (session_id, step_id, tool_call_id)
);

CREATE TABLE "{prefix}runs" (
    session_id TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL,
    turn       BIGINT NOT NULL,
    status     TEXT   NOT NULL DEFAULT '',
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, run_id)
);
CREATE INDEX "{prefix}runs_turn" ON "{prefix}runs" (session_id, turn);

CREATE TABLE "{prefix}sub_session_refs" (
    session_id     TEXT COLLATE "C" NOT NULL,
    sub_session_id TEXT COLLATE "C" NOT NULL,
    seq            BIGINT NOT NULL,
    body           BYTEA  NOT NULL,
    PRIMARY KEY (session_id, sub_session_id)
);

CREATE TABLE "{prefix}usage_entries" (
    id          TEXT COLLATE "C" PRIMARY KEY,
    session_id  TEXT COLLATE "C" NOT NULL,
    agent_type  TEXT   NOT NULL DEFAULT '',
    kind        TEXT   NOT NULL,
    run_id      TEXT,
    step_count  INTEGER NOT NULL DEFAULT 0,
    "timestamp" BIGINT NOT NULL,
    body        BYTEA  NOT NULL
);
CREATE INDEX "{prefix}usage_entries_session" ON "{prefix}usage_entries" (session_id, "timestamp", id);
CREATE INDEX "{prefix}usage_entries_agent" ON "{prefix}usage_entries" (agent_type, "timestamp", id);
CREATE INDEX "{prefix}usage_entries_time" ON "{prefix}usage_entries" ("timestamp", id);

-- Leases.  Rows are never deleted, only run out: the token survives and never goes back.
CREATE TABLE "{prefix}locks" (
    key           TEXT COLLATE "C" PRIMARY KEY,
    owner         TEXT   NOT NULL,
    claim         TEXT   NOT NULL,
    fencing_token BIGINT NOT NULL,
    ttl_ms        BIGINT NOT NULL,
    acquired_at   BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
) WITH (fillfactor = 70);
