"""Who is let in, and what they may do: users, tokens, sessions, and what was done."""
