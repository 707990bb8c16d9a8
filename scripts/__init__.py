"""What the Makefile calls: environments, the demo, the tiny models' variants and prompts.

Modules that run before any environment exists use the standard library only.
"""
