"""What `trainer-kai doctor` says of a sound installation, and of broken ones."""
