"""Hostile input: exports, queries and packed blobs, mutated in structure and byte by byte."""
