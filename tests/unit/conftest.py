"""Hypothesis without a clock: how fast a shared machine runs an example says nothing about the code."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, max_examples=60)
settings.load_profile("unit")
