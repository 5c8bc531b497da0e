"""Stores: protocols, and one folder a backend."""
