-- ARGV: id.  Whether there was one.
redis.call('UNLINK', head, chunks, keys)
return {row[ID] and '1' or ''}
