"""Programs that run in environments of other packages; see `bench.beside`."""
