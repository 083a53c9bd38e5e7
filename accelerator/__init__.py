"""The dataset: from a Batch to queryable DuckDB rows. Imports only checkpoints."""
