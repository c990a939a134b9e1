"""The driver of `make mutants`: it breaks the product in small ways and counts what the tests notice."""
