"""Small patches that each break one rule; the test they name must turn red."""
