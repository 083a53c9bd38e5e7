"""What holds the product to its word."""
