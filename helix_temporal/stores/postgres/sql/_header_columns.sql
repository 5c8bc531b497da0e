t.epoch, t.owner, t.closed, t.head, t.last_id, t.committed, t.base, t.base_id, t.slice, t.slice_version, t.adapter,
    t.size, t.base_size, t.archived, t.archived_size, t.unarchived_since, t.deleted, t.born, t.cut, t.origin
