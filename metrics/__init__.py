"""Instruments, recorder, exporters. Imports nothing of ours."""
