"""The memory: what was found of earlier jobs, in a ledger; context for a person, never proof."""
