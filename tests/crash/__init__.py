"""The kill harness: a server that is killed again and again under load, and an audit of what it kept."""
