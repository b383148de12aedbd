"""Coral's evaluation on substituted inputs: set-up and epochs in, ``docs/reproduce-coral.md`` out."""
