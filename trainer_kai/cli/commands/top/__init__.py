"""`trainer-kai top`: the GPUs of each node, and what uses them."""
