-- Whether a thread admits its writer.
-- $2 the writer's epoch
-- rule: stores.threads.fences.Fence.find_refusal
t.epoch = $2 AND NOT t.closed AND NOT t.deleted
