"""Somebody who wants a session to lose something: ``python -m chaos --seed 1 --seconds 120``."""
