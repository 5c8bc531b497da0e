-- Adds a step where the thread stands exactly at its head and returns the header after it; else nothing.
-- Arguments as in _thread_append.sql.
WITH {include:thread_append}
SELECT {include:header} FROM thread_moved AS t
