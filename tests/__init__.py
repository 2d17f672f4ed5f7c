"""The tests, importable as ``tests.…`` wherever pytest runs."""
