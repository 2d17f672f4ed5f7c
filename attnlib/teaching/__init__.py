"""What the chapters use to teach: notebook settings and pictures."""
