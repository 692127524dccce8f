"""Evidence and bundles: the raw text that each node printed, word for word."""
