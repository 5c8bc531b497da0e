-- Whether row l is held by the claim that asks.
-- rule: stores.locks.take_lease
(l.owner = excluded.owner AND l.claim = excluded.claim AND {include:lock_held})
