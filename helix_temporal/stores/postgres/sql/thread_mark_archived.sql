-- Notes where a thread stood when all of it was archived.
-- $1 thread id, $2 place
UPDATE "{prefix}threads" SET archived_place = $2 WHERE thread_id = $1
