"""Figures of the frameworks' stores; each needs the packages of its framework, see the modules."""
