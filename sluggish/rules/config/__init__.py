"""Wrong settings: interface, GID, P2P, limits, launch, timeouts, versions, environment."""

from sluggish.findings import Rule
from sluggish.rules.config.environment import cfg_env
from sluggish.rules.config.launch import cfg_launch, cfg_ncclbug, cfg_timeout, cfg_versions
from sluggish.rules.config.limits import cfg_limits
from sluggish.rules.config.network import cfg_gid, cfg_iface, cfg_p2p
from sluggish.rules.config.nvls import cfg_nvls

RULES: tuple[Rule, ...] = (
    cfg_iface, cfg_gid, cfg_p2p, cfg_nvls, cfg_limits, cfg_launch, cfg_timeout, cfg_versions,
    cfg_env, cfg_ncclbug,
)  # fmt: skip
