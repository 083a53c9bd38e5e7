"""Variants of the code that look right and are wrong, and the tests that tell them apart."""
