-- ARGV: key.  '1' if somebody holds it.
return held and '1' or nil
