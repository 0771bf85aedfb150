"""Suites and servers for tests, ours and the users'."""
