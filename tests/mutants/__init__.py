"""The driver of `make mutants`: it breaks the product, and counts what the tests notice."""
