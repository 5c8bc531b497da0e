-- The server's clock in ms.
SELECT {now}
