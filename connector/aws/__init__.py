"""The AWS boundary: the only callers of boto3, and the cut of what comes over the wire."""
