"""Trains the demo model's recipe: data, starting point, training, export and evaluation, one module each."""
