"""Hypothesis: models, state machines, round trips."""
