"""Mutants of the core's values."""

MUTANTS = ()
