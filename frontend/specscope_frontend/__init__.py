"""Templates, static files and figures of the pages; imports nothing of the server or the tracer."""
