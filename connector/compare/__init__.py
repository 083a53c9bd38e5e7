"""Comparing source and copy item by item, independently of how the copy was made."""
