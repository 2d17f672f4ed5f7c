"""Stands for the package of this name, which shows figures below the cells of a notebook."""
