"""Evidence to findings: pure functions, no I/O."""
