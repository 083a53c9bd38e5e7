"""Following a stream: which shard is read next, reading it, and finding its children."""
