"""Renderers: what each tool would print of the state of the world."""
