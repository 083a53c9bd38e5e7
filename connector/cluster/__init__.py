"""Away from one machine: the log in S3 comes first, and every node's rows follow it."""
