"""The SGLang adapter: hooks on the speculative path of its scheduler processes."""
