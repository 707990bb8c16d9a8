"""SpecScope's server: receiver, store, diagnosis, alerts, API and pages."""
