"""The vLLM adapter's place: its plugin entry point exists so that the name is taken, and does nothing."""
