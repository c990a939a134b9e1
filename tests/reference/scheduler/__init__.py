"""The reference scheduler: slow and plain, one module for each part of the rules."""
