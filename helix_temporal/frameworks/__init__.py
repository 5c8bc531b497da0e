"""The durable session store under the frameworks that agents are written with: a module for each.

A module imports its own framework alone, and that only where it must; errors of ours are those of
`helix_temporal.errors` unless the framework has one that its runner looks for.
"""
