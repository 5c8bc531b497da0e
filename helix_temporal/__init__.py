"""Durable conversation threads and sessions for agents on Temporal."""
