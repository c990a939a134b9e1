"""Read objects from files, and report what is wrong with them."""
