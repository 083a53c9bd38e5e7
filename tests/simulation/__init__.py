"""The whole service on one seed and on virtual time."""
