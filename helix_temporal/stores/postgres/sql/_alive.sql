-- Whether a thread has not expired; without OR, for which the planner looks for more plans.
-- rule: stores.threads.operations.HotThread.expired
(t.expires_at <= {now}) IS NOT TRUE
