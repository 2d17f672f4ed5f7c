"""Measurements of attnlib beside PyTorch and plain NumPy; README.md says how to run them."""
