"""Random clusters for the comparison with the reference, one module for each part."""
