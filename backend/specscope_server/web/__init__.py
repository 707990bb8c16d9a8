"""The pages: routes and what they hand to the templates."""
