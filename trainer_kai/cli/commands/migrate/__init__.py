"""`trainer-kai migrate`: what a move from KAI, Kueue or Volcano to trainer-kai would change."""
