"""What the numbers in the documentation were measured with."""
