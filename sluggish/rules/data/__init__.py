"""Rules on data: storage, loader, checkpoint, and what a start-up reads."""

from sluggish.rules.data.auth import data_auth
from sluggish.rules.data.ckpt import data_ckpt
from sluggish.rules.data.imports import data_import
from sluggish.rules.data.loader import data_loader
from sluggish.rules.data.lock import start_lock
from sluggish.rules.data.network import data_network
from sluggish.rules.data.storage import data_storage
from sluggish.rules.data.targets import data_target

RULES = (
    data_storage, data_target, data_auth, data_network, data_loader, data_ckpt, data_import,
    start_lock,
)  # fmt: skip
