"""Pure decisions, on a fake clock."""
