"""Helpers of every test that needs a store: a real PostgreSQL server, facts to write, whole-table dumps."""
