"""One port to the database, its schema and its adapters."""
