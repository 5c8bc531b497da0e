"""A module for each framework: ``SUBJECTS``, its stores and ours, behind one interface."""
