"""Following jobs from outside: samples in, events and alerts out."""
