"""The house rules, held as tests: who may import whom, and how big things may grow."""
