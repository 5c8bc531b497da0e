(t.checksum = hashtextextended((t.thread_id || ' ' || t.epoch::text || ' ' || t.owner || ' ' || t.closed::text || ' '
    || t.head::text || ' ' || t.last_id || ' ' || t.committed::text || ' ' || t.base::text || ' ' || t.base_id || ' '
    || t.slice_version::text || ' ' || t.adapter || ' ' || t.size::text || ' ' || t.base_size::text || ' '
    || t.archived::text || ' ' || t.archived_size::text || ' ' || t.unarchived_since::text || ' ' || t.deleted::text
    || ' ' || t.born::text || ' ' || t.cut::text || ' ' || t.origin) COLLATE "C", 0))
