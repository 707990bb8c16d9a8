"""What the tests of the wire share: fixed traffic, a real receiver, an engine process without an engine."""
