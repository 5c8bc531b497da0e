"""The table of faults: the frameworks' best public stores and ours, under the same faults (`make faults`)."""
