-- Why: threads without Redis, so that messages and state commit together.  Phase: expand.  Runs inside the
-- migration transaction.
-- The header of a thread; its messages from base on are in messages.  base_id and last_id are the ids of the
-- messages before base and before head.  A row whose expires_at has passed is not there.

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
    expires_at       BIGINT
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
