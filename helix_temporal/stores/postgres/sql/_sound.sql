(t.checksum = hashtextextended(concat_ws(' ', t.thread_id, t.epoch, t.owner, t.closed::text, t.head, t.last_id, t.committed,
    t.base, t.base_id, t.slice_version, t.adapter, t.size, t.base_size, t.archived, t.archived_size, t.unarchived_since,
    t.deleted::text, t.born, t.cut, t.origin) COLLATE "C", 0))
