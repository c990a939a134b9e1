"""The process in a reservation pod: it holds a device that other pods share, and says which."""
