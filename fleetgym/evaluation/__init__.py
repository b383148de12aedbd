"""Evaluate agents on a suite: list the jobs, play them on many workers, and record them in a results file."""
