-- The tables of helix_temporal in PostgreSQL, with the default prefix: all migrations, one after the other.
-- Generated from them by `make schema`; `helix-temporal migrate` applies them.

CREATE TABLE IF NOT EXISTS "__agents_migrations" (
    version    INTEGER PRIMARY KEY,
    name       TEXT   NOT NULL,
    checksum   TEXT   NOT NULL,
    applied_at BIGINT NOT NULL
);

-- ==== V1 base tables

-- Why: every table of a session and of its thread.  Phase: expand.  Runs inside the migration transaction.
-- A row is a document (body, bytes that no statement looks into) and the columns that are queried.  Times are
-- milliseconds since 1970.  Ids sort by code point in every database, as they do in the other stores.  seq, turn
-- and created_at are the order in which a session's records of one kind are listed.

CREATE TABLE "__agents_states" (
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
CREATE INDEX "__agents_states_updated" ON "__agents_states" (updated_at, session_id);
CREATE INDEX "__agents_states_created" ON "__agents_states" (created_at, session_id);
CREATE INDEX "__agents_states_agent" ON "__agents_states" (agent_type, updated_at, session_id);
CREATE INDEX "__agents_states_user" ON "__agents_states" (user_id, updated_at, session_id);
CREATE INDEX "__agents_states_status" ON "__agents_states" (status, updated_at, session_id);
CREATE INDEX "__agents_states_parent" ON "__agents_states" (parent_session_id, updated_at, session_id)
    WHERE parent_session_id IS NOT NULL;
CREATE INDEX "__agents_states_tags" ON "__agents_states" USING gin (tags);
CREATE INDEX "__agents_states_metadata" ON "__agents_states" USING gin (metadata jsonb_path_ops);

-- The log of a thread; a session's main thread has the session's id.
CREATE TABLE "__agents_messages" (
    thread_id TEXT COLLATE "C" NOT NULL,
    position  BIGINT NOT NULL,
    kind      TEXT   NOT NULL,
    id        TEXT   NOT NULL,
    body      BYTEA  NOT NULL,
    PRIMARY KEY (thread_id, position)
);

CREATE TABLE "__agents_checkpoints" (
    session_id TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    run_id     TEXT   NOT NULL DEFAULT '',
    step_id    TEXT   NOT NULL DEFAULT '',
    seq        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, id)
);
CREATE INDEX "__agents_checkpoints_seq" ON "__agents_checkpoints" (session_id, seq);
CREATE INDEX "__agents_checkpoints_step" ON "__agents_checkpoints" (session_id, run_id, step_id);

CREATE TABLE "__agents_staging" (
    session_id   TEXT COLLATE "C" NOT NULL,
    step_id      TEXT COLLATE "C" NOT NULL,
    tool_call_id TEXT COLLATE "C" NOT NULL,
    seq          BIGINT NOT NULL,
    body         BYTEA  NOT NULL,
    PRIMARY KEY (session_id, step_id, tool_call_id)
);

CREATE TABLE "__agents_runs" (
    session_id TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL,
    turn       BIGINT NOT NULL,
    status     TEXT   NOT NULL DEFAULT '',
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, run_id)
);
CREATE INDEX "__agents_runs_turn" ON "__agents_runs" (session_id, turn);

CREATE TABLE "__agents_sub_session_refs" (
    session_id     TEXT COLLATE "C" NOT NULL,
    sub_session_id TEXT COLLATE "C" NOT NULL,
    seq            BIGINT NOT NULL,
    body           BYTEA  NOT NULL,
    PRIMARY KEY (session_id, sub_session_id)
);

CREATE TABLE "__agents_usage_entries" (
    id          TEXT COLLATE "C" PRIMARY KEY,
    session_id  TEXT COLLATE "C" NOT NULL,
    agent_type  TEXT   NOT NULL DEFAULT '',
    kind        TEXT   NOT NULL,
    run_id      TEXT,
    step_count  INTEGER NOT NULL DEFAULT 0,
    "timestamp" BIGINT NOT NULL,
    body        BYTEA  NOT NULL
);
CREATE INDEX "__agents_usage_entries_session" ON "__agents_usage_entries" (session_id, "timestamp", id);
CREATE INDEX "__agents_usage_entries_agent" ON "__agents_usage_entries" (agent_type, "timestamp", id);
CREATE INDEX "__agents_usage_entries_time" ON "__agents_usage_entries" ("timestamp", id);

-- Leases.  Rows are never deleted, only run out: the token survives and never goes back.
CREATE TABLE "__agents_locks" (
    key           TEXT COLLATE "C" PRIMARY KEY,
    owner         TEXT   NOT NULL,
    claim         TEXT   NOT NULL,
    fencing_token BIGINT NOT NULL,
    ttl_ms        BIGINT NOT NULL,
    acquired_at   BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
) WITH (fillfactor = 70);

-- ==== V2 remote sub sessions

-- Why: a sub-session may live in another deployment.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "__agents_sub_session_refs" ADD COLUMN remote_json JSONB;

-- ==== V3 pending client tool calls

-- Why: tool calls that a client has to answer.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "__agents_states" ADD COLUMN pending_client_tool_calls JSONB;

-- ==== V4 root session

-- Why: answers arrive at the root of a tree of sessions and are routed from there.  Phase: expand.  Runs inside
-- the migration transaction.

ALTER TABLE "__agents_states" ADD COLUMN root_session_id TEXT COLLATE "C";
ALTER TABLE "__agents_states" ADD COLUMN client_tool_call_ownership JSONB;
CREATE INDEX "__agents_states_root" ON "__agents_states" (root_session_id) WHERE root_session_id IS NOT NULL;

-- ==== V5 completed client tool calls

-- Why: an answer that comes twice is told from a second one.  Phase: expand.  Runs inside the migration
-- transaction.

ALTER TABLE "__agents_states" ADD COLUMN completed_client_tool_calls JSONB;

-- ==== V6 mode and completion reason

-- Why: sessions that wait for the next message, and why a run ended.  Phase: expand.  Runs inside the migration
-- transaction.

ALTER TABLE "__agents_states" ADD COLUMN mode TEXT
    CONSTRAINT "__agents_states_mode" CHECK (mode IN ('standard', 'persistent'));
ALTER TABLE "__agents_runs" ADD COLUMN completion_reason TEXT;

-- ==== V7 suspension

-- Why: suspended sessions run out.  The time has a column of its own: compared as text inside the JSON, times of
-- another number of digits would be missed.  Phase: expand.  Runs inside the migration transaction.

ALTER TABLE "__agents_states" ADD COLUMN suspension_context JSONB;
ALTER TABLE "__agents_states" ADD COLUMN expires_at BIGINT;
CREATE INDEX "__agents_states_expires" ON "__agents_states" (expires_at, session_id) WHERE expires_at IS NOT NULL;

-- ==== V8 session rows threads and streams

-- Why: repeated operations get their first answer and old writers are refused; all that a session has beside its
-- state lies in one table, because no statement looks into it; threads and streams without Redis; damage below the
-- database is found.  Phase: contract.  Runs inside the migration transaction.
--
-- Rows of checkpoints, staging, runs and sub_session_refs move to session_rows, and their tables go: nothing would write
-- them any more, and whoever read them would see a session that stands still.  Bodies move as they are; the columns
-- beside them repeat what the body says.  Messages of versions 1 to 7 have no header of a thread and stay as they are.

-- Bodies end with a checksum that the client makes, a CRC-32 of the place (its parts with NUL between) and the body.
-- Those of older versions have none and would be refused as damaged: this function makes it, and goes at the end.
CREATE FUNCTION "__agents_with_checksum"(body BYTEA, place BYTEA) RETURNS BYTEA LANGUAGE plpgsql AS $$
DECLARE
    data BYTEA  := place || body;
    crc  BIGINT := 4294967295;
BEGIN
    FOR byte IN 0 .. octet_length(data) - 1 LOOP
        crc := crc # get_byte(data, byte);
        FOR round IN 1 .. 8 LOOP
            crc := (crc >> 1) # (3988292384 * (crc & 1));
        END LOOP;
    END LOOP;
    RETURN body || decode(lpad(to_hex(crc # 4294967295), 8, '0'), 'hex');
END $$;

-- rev counts every change of anything of the session, 0 is a session that was never written; a deleted session keeps
-- its row, rev and max_epoch.  due_at is the earliest deadline of what the session waits for.  summary is what lists show,
-- so that they need not read the state; a session that was not written since has none.
ALTER TABLE "__agents_states"
    ADD COLUMN rev             BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN max_epoch       BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN deleted         BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN cleanup_pending BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN due_at          BIGINT,
    ADD COLUMN summary         BYTEA;
UPDATE "__agents_states"
SET rev = 1, body = "__agents_with_checksum"(body, convert_to(session_id, 'UTF8') || '\x00'::bytea || 'state'::bytea);
CREATE INDEX "__agents_states_cleanup" ON "__agents_states" (session_id) WHERE cleanup_pending;
CREATE INDEX "__agents_states_due" ON "__agents_states" (due_at, session_id) WHERE due_at IS NOT NULL;

-- Lists count what they list, and a deleted session is in none: with these indexes no row is read for the count of
-- all sessions, nor of those of a time.
CREATE INDEX "__agents_states_live_updated" ON "__agents_states" (updated_at, session_id) WHERE NOT deleted;
CREATE INDEX "__agents_states_live_created" ON "__agents_states" (created_at, session_id) WHERE NOT deleted;
DROP INDEX "__agents_states_updated";
DROP INDEX "__agents_states_created";

UPDATE "__agents_usage_entries" SET body = "__agents_with_checksum"(body, '');

-- All that a session has beside its state.  kind says what a row is and where grp, key and ord come from
-- (RowKind); ord and key are the order in which rows of a kind are listed.
CREATE TABLE "__agents_session_rows" (
    session_id TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    grp        TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    ord        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, kind, grp, key)
);
INSERT INTO "__agents_session_rows" (session_id, kind, grp, key, ord, body)
SELECT session_id, kind, grp, key, ord, "__agents_with_checksum"(
    body, convert_to(session_id, 'UTF8') || '\x00'::bytea || convert_to(kind, 'UTF8') || '\x00'::bytea
        || convert_to(key, 'UTF8') || '\x00'::bytea || convert_to(grp, 'UTF8') || '\x00'::bytea
        || convert_to(ord::text, 'UTF8')
)
FROM (
    SELECT session_id, 'checkpoint' AS kind, '' AS grp, id AS key, seq AS ord, body FROM "__agents_checkpoints"
    UNION ALL SELECT session_id, 'staged', step_id, tool_call_id, seq, body FROM "__agents_staging"
    UNION ALL SELECT session_id, 'run', '', run_id, turn, body FROM "__agents_runs"
    UNION ALL SELECT session_id, 'ref', '', sub_session_id, seq, body FROM "__agents_sub_session_refs"
) AS old;
-- By order, for statements that say kind <> '': in a table without statistics the planner takes this index, if it may,
-- also for single rows, and then reads all of their kind.
CREATE INDEX "__agents_session_rows_order" ON "__agents_session_rows" (session_id, kind, ord, key) WHERE kind <> '';
CREATE INDEX "__agents_session_rows_operations" ON "__agents_session_rows" (ord) WHERE kind = 'operation';
DROP TABLE "__agents_checkpoints", "__agents_staging", "__agents_runs", "__agents_sub_session_refs";

DROP FUNCTION "__agents_with_checksum"(BYTEA, BYTEA);

-- The header of a thread; its messages from base on are in messages.  base_id and last_id are the ids of the
-- messages before base and before head.  A row whose expires_at has passed is not there.  It has numbers that only
-- the server knows, so the server makes its checksum.
CREATE TABLE "__agents_threads" (
    thread_id        TEXT COLLATE "C" PRIMARY KEY,
    epoch            BIGINT  NOT NULL,
    owner            TEXT    NOT NULL,
    closed           BOOLEAN NOT NULL,
    head             BIGINT  NOT NULL,
    last_id          TEXT    NOT NULL,
    committed        BIGINT  NOT NULL,
    base             BIGINT  NOT NULL,
    base_id          TEXT    NOT NULL,
    slice            BYTEA   NOT NULL,
    slice_version    BIGINT  NOT NULL,
    adapter          TEXT    NOT NULL,
    size             BIGINT  NOT NULL,
    base_size        BIGINT  NOT NULL,
    archived         BIGINT  NOT NULL,
    archived_size    BIGINT  NOT NULL,
    unarchived_since BIGINT  NOT NULL,
    deleted          BOOLEAN NOT NULL,
    born             BIGINT  NOT NULL,
    cut              BIGINT  NOT NULL,
    origin           TEXT    NOT NULL,
    expires_at       BIGINT,
    -- Where the thread stood when all of it was archived: for scans, and not in the checksum.
    archived_place   TEXT    NOT NULL DEFAULT '',
    checksum         BIGINT GENERATED ALWAYS AS (
        hashtextextended((thread_id || ' ' || epoch::text || ' ' || owner || ' ' || closed::text || ' ' || head::text
            || ' ' || last_id || ' ' || committed::text || ' ' || base::text || ' ' || base_id || ' '
            || slice_version::text || ' ' || adapter || ' ' || size::text || ' ' || base_size::text || ' '
            || archived::text || ' ' || archived_size::text || ' ' || unarchived_since::text || ' ' || deleted::text
            || ' ' || born::text || ' ' || cut::text || ' ' || origin) COLLATE "C", 0)
    ) STORED
) WITH (fillfactor = 70);
CREATE INDEX "__agents_threads_expires" ON "__agents_threads" (expires_at) WHERE expires_at IS NOT NULL;

-- Bytes on their way that are too large for a workflow's history.
CREATE TABLE "__agents_thread_payloads" (
    thread_id  TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    body       BYTEA  NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, key)
);
CREATE INDEX "__agents_thread_payloads_expires" ON "__agents_thread_payloads" (expires_at);

-- Streams: chunks and keys belong to one making of a stream, so that what is left of a deleted one never meets its
-- successor.  Only the head is updated, and none of its indexed columns.
CREATE TABLE "__agents_streams" (
    stream_id  TEXT COLLATE "C" PRIMARY KEY,
    made       TEXT COLLATE "C" NOT NULL,
    status     TEXT   NOT NULL,
    first      BIGINT NOT NULL,
    last       BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    fence      BIGINT,
    facts      BYTEA  NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT
) WITH (fillfactor = 70);

CREATE TABLE "__agents_stream_chunks" (
    made       TEXT COLLATE "C" NOT NULL,
    sequence   BIGINT NOT NULL,
    run_id     TEXT   NOT NULL,
    written_at BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (made, sequence)
);

CREATE TABLE "__agents_stream_keys" (
    made     TEXT COLLATE "C" NOT NULL,
    key      TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    PRIMARY KEY (made, key)
);
