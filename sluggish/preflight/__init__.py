"""What must hold before a job starts; and `agree_on_steps`, for the training code itself."""

from sluggish.preflight.agree import agree_on_steps

__all__ = ["agree_on_steps"]
