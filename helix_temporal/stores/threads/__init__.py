"""Threads in a hot store: who may write, what each operation does, and a store without an archive."""
