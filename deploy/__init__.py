"""What runs dynaduck in containers, and its table for a first try."""
