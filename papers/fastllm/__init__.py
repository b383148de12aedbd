"""Repeat the evaluation of FastLLM (Cheng and Nguyen, 2026): `python -m fleetgym.papers run fastllm`."""
