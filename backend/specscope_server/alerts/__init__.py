"""Rules over diagnoses, and the delivery of what they say."""
