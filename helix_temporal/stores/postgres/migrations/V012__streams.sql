-- Why: streams, for deployments without Redis.  Chunks and keys belong to one making of a stream, so that what is
-- left of a deleted one never meets its successor.  Only the head is updated, and none of its indexed columns.
-- Phase: expand.  Runs inside the migration transaction.

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
