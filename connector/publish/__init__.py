"""Published copies: when one is made, and where it goes. `accelerator.copies` writes it."""
