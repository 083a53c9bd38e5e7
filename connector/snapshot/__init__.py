"""Reading the table itself: the scan, the capacity it may use, and single keys."""
