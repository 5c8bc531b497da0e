-- Whether a stream s has not expired.
(s.expires_at IS NULL OR s.expires_at > {now})
