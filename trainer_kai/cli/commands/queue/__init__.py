"""`trainer-kai queue`: list and create queues, and change which namespaces may use them."""
