"""Typed facts: what the evidence says, without judgement."""
