"""Campaigns of real failures, counted against books that are kept outside the system.

The short forms run with all tests; ``python -m tests.chaos --kills 500`` runs the long ones.
"""
