"""What answers for a running service: HTTP, the status page, and the process around it."""
