"""Families of executable, machine-graded tasks."""
