-- Whether a thread admits its writer: the rule is Fence.find_refusal in helix_temporal/stores/threads/fences.py.
-- $2 the writer's epoch
t.epoch = $2 AND NOT t.closed AND NOT t.deleted
