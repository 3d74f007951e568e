"""A scripted backend for tests of logic that needs no framework."""
