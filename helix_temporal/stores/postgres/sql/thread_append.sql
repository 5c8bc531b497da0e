-- Adds a step where the thread stands exactly at its head and returns the header after it; else nothing.
-- Arguments as in _thread_moved.sql.
WITH thread_moved AS (
    {include:thread_moved} RETURNING t.*
), thread_added AS (
    {include:thread_added}
)
SELECT {include:header_written} FROM thread_moved AS t
