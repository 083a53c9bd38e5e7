"""Durable truth: where reading stands. Knows no rows and no streams, imports nothing of ours."""
