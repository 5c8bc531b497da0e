-- Whether the lease of row l has not ended.
(l.expires_at * 1000 > {include:microseconds})
