"""`trainer-kai queue`: list and create queues, and change who may use them."""
