"""The rules of a session: pure, without I/O and without Temporal.

The workflow drives them, activities do I/O around them, and the session store is their projection.
"""
