"""`trainer-kai plan`: what a TrainJob becomes before it is submitted."""
