-- Whether row l is held by the claim that asks.
(l.owner = excluded.owner AND l.claim = excluded.claim AND {include:lock_held})
