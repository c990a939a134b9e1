"""What is released: the Python package and the image."""
