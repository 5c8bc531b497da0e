-- Version 1.  Bodies end with a checksum of themselves and of their place (`helix_temporal.stores.checksums`); what
-- stands in columns beside them is for searches.  Times are ms since 1970.
CREATE TABLE threads (
    thread_id TEXT NOT NULL PRIMARY KEY,
    expires_at INTEGER,
    header BLOB NOT NULL,
    slice BLOB NOT NULL,
    archived_place TEXT NOT NULL DEFAULT ''
);
CREATE INDEX threads_expiring ON threads (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE messages (
    thread_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread_id, position)
);

-- A row stays when its session is deleted: revision and fence never go back.  The state comes last, so that searches
-- don't read over it.
CREATE TABLE sessions (
    session_id TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    max_epoch INTEGER NOT NULL,
    guard BLOB NOT NULL,
    agent_type TEXT,
    user_id TEXT,
    status TEXT,
    parent_session_id TEXT,
    labels TEXT,
    cleanup_pending INTEGER,
    created_at INTEGER,
    updated_at INTEGER,
    expires_at INTEGER,
    due_at INTEGER,
    summary BLOB,
    state BLOB
);
CREATE INDEX sessions_created ON sessions (created_at, session_id) WHERE summary IS NOT NULL;
CREATE INDEX sessions_updated ON sessions (updated_at, session_id) WHERE summary IS NOT NULL;
CREATE INDEX sessions_of_user ON sessions (user_id, created_at, session_id) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_of_parent ON sessions (parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX sessions_expiring ON sessions (expires_at, session_id) WHERE expires_at IS NOT NULL;
CREATE INDEX sessions_due ON sessions (due_at, session_id) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_to_clean ON sessions (session_id) WHERE cleanup_pending = 1;

CREATE TABLE session_rows (
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    group_id TEXT NOT NULL,
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (session_id, kind, group_id, key)
);
CREATE INDEX session_rows_in_order ON session_rows (session_id, kind, place, key);
CREATE INDEX session_rows_of_operations ON session_rows (place) WHERE kind = 'operation';

CREATE TABLE streams (
    stream_id TEXT NOT NULL PRIMARY KEY,
    made TEXT NOT NULL,
    last INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    head BLOB NOT NULL
);
CREATE INDEX streams_by_age ON streams (updated_at);

CREATE TABLE stream_chunks (
    made TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (made, sequence)
);

CREATE TABLE stream_keys (
    made TEXT NOT NULL,
    key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (made, key)
) WITHOUT ROWID;

-- A row stays when its lease ends: tokens never go back.
CREATE TABLE locks (
    key TEXT NOT NULL PRIMARY KEY,
    lease BLOB NOT NULL
);

CREATE TABLE usage (
    session_id TEXT NOT NULL,
    id TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run_id TEXT,
    agent_type TEXT NOT NULL,
    step_count INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (session_id, id)
);
CREATE INDEX usage_in_order ON usage (timestamp, session_id, id);

CREATE TABLE payloads (
    thread_id TEXT NOT NULL,
    key TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread_id, key)
);
CREATE INDEX payloads_expiring ON payloads (expires_at);
