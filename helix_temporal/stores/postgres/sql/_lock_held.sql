-- Whether the lease of row l has not ended.
-- rule: stores.locks.LeaseRow.held
(l.expires_at * 1000 > {include:microseconds})
