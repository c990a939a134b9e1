"""What is released and tried first: the Python package, the image and `make try`."""
