"""What the page of supported versions says."""
