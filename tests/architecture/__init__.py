"""The architecture rules as tests: import contracts, limits of size, names, generated tables."""
