"""Looking before running: is the set-up right, what does it need, can it be resumed."""
