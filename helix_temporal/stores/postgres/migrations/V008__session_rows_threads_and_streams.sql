-- Why: repeated operations get their first answer and old writers are refused; all that a session has beside its
-- state lies in one table, because no statement looks into it; threads and streams without Redis; damage below the
-- database is found.  Phase: contract.  Runs inside the migration transaction.
--
-- Rows of checkpoints, staging, runs and sub_session_refs move to session_rows, and their tables go: nothing would write
-- them any more, and whoever read them would see a session that stands still.  Bodies move as they are; the columns
-- beside them repeat what the body says.  Messages of versions 1 to 7 have no header of a thread and stay as they are.

-- Bodies end with a checksum that the client makes, a CRC-32 of the place (its parts with NUL between) and the body.
-- Those of older versions have none and would be refused as damaged: this function makes it, and goes at the end.
CREATE FUNCTION "{prefix}with_checksum"(body BYTEA, place BYTEA) RETURNS BYTEA LANGUAGE plpgsql AS $$
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
ALTER TABLE "{prefix}states"
    ADD COLUMN rev             BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN max_epoch       BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN deleted         BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN cleanup_pending BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN due_at          BIGINT,
    ADD COLUMN summary         BYTEA;
UPDATE "{prefix}states"
SET rev = 1, body = "{prefix}with_checksum"(body, convert_to(session_id, 'UTF8') || '\x00'::bytea || 'state'::bytea);
CREATE INDEX "{prefix}states_cleanup" ON "{prefix}states" (session_id) WHERE cleanup_pending;
CREATE INDEX "{prefix}states_due" ON "{prefix}states" (due_at, session_id) WHERE due_at IS NOT NULL;

-- Lists count what they list, and a deleted session is in none: with these indexes no row is read for the count of
-- all sessions, nor of those of a time.
CREATE INDEX "{prefix}states_live_updated" ON "{prefix}states" (updated_at, session_id) WHERE NOT deleted;
CREATE INDEX "{prefix}states_live_created" ON "{prefix}states" (created_at, session_id) WHERE NOT deleted;
DROP INDEX "{prefix}states_updated";
DROP INDEX "{prefix}states_created";

UPDATE "{prefix}usage_entries" SET body = "{prefix}with_checksum"(body, '');

-- All that a session has beside its state.  kind says what a row is and where grp, key and ord come from
-- (RowKind); ord and key are the order in which rows of a kind are listed.
CREATE TABLE "{prefix}session_rows" (
    session_id TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    grp        TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    ord        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (session_id, kind, grp, key)
);
INSERT INTO "{prefix}session_rows" (session_id, kind, grp, key, ord, body)
SELECT session_id, kind, grp, key, ord, "{prefix}with_checksum"(
    body, convert_to(session_id, 'UTF8') || '\x00'::bytea || convert_to(kind, 'UTF8') || '\x00'::bytea
        || convert_to(key, 'UTF8') || '\x00'::bytea || convert_to(grp, 'UTF8') || '\x00'::bytea
        || convert_to(ord::text, 'UTF8')
)
FROM (
    SELECT session_id, 'checkpoint' AS kind, '' AS grp, id AS key, seq AS ord, body FROM "{prefix}checkpoints"
    UNION ALL SELECT session_id, 'staged', step_id, tool_call_id, seq, body FROM "{prefix}staging"
    UNION ALL SELECT session_id, 'run', '', run_id, turn, body FROM "{prefix}runs"
    UNION ALL SELECT session_id, 'ref', '', sub_session_id, seq, body FROM "{prefix}sub_session_refs"
) AS old;
-- By order, for statements that say kind <> '': in a table without statistics the planner takes this index, if it may,
-- also for single rows, and then reads all of their kind.
CREATE INDEX "{prefix}session_rows_order" ON "{prefix}session_rows" (session_id, kind, ord, key) WHERE kind <> '';
CREATE INDEX "{prefix}session_rows_operations" ON "{prefix}session_rows" (ord) WHERE kind = 'operation';
DROP TABLE "{prefix}checkpoints", "{prefix}staging", "{prefix}runs", "{prefix}sub_session_refs";

DROP FUNCTION "{prefix}with_checksum"(BYTEA, BYTEA);

-- The header of a thread; its messages from base on are in messages.  base_id and last_id are the ids of the
-- messages before base and before head.  A row whose expires_at has passed is not there.  It has numbers that only
-- the server knows, so the server makes its checksum.
CREATE TABLE "{prefix}threads" (
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
CREATE INDEX "{prefix}threads_expires" ON "{prefix}threads" (expires_at) WHERE expires_at IS NOT NULL;

-- Bytes on their way that are too large for a workflow's history.
CREATE TABLE "{prefix}thread_payloads" (
    thread_id  TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    body       BYTEA  NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (thread_id, key)
);
CREATE INDEX "{prefix}thread_payloads_expires" ON "{prefix}thread_payloads" (expires_at);

-- Streams: chunks and keys belong to one making of a stream, so that what is left of a deleted one never meets its
-- successor.  Only the head is updated, and none of its indexed columns.
CREATE TABLE "{prefix}streams" (
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

CREATE TABLE "{prefix}stream_chunks" (
    made       TEXT COLLATE "C" NOT NULL,
    sequence   BIGINT NOT NULL,
    run_id     TEXT   NOT NULL,
    written_at BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (made, sequence)
);

CREATE TABLE "{prefix}stream_keys" (
    made     TEXT COLLATE "C" NOT NULL,
    key      TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    PRIMARY KEY (made, key)
);
