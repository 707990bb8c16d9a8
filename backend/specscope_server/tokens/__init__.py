"""Token ids as text: what the tokens of a tokenizer are, and what a request's steps made of them."""
