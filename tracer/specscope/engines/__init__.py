"""One adapter a serving engine: its names and tensors end there, engine-neutral records leave it."""
