"""The real command as a subprocess, asked from outside."""
