(t.expires_at IS NULL OR t.expires_at > {now})
