-- The server's clock in µs, as it is when it is looked at, not when the transaction began.
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
