"""What an upgrade begins with, as it was recorded."""
