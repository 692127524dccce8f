"""What kind of machines the nodes are: a provider's instances, trays of a rack-wide NVLink domain.

It changes the advice alone: who can repair something, and whether one node can be reset by itself.
"""

import re

from sluggish.correlate.hcas import of_job
from sluggish.facts.derived import Look, Profile
from sluggish.facts.fabric import FabricFlavour
from sluggish.facts.gpu import Gpu
from sluggish.facts.host import Machine
from sluggish.facts.store import Facts

A_CLOUD = "the provider"
PROVIDERS = (
    ("Amazon EC2", "AWS"),
    ("Microsoft Corporation Virtual Machine", "Azure"),
    ("Google Compute Engine", "Google Cloud"),
    ("Alibaba Cloud", "Alibaba Cloud"),
    ("Tencent Cloud", "Tencent Cloud"),
    ("OracleCloud.com", "Oracle Cloud"),
)
"""Words of DMI and the provider (systemd src/basic/virt.c and cloud-init's ds-identify know them).

A bare QEMU or VMware says that it is virtual, not whose it is: no word for it stands here.
"""
_RACK = re.compile(r"\bGB[23]00\b")


def profile(facts: Facts, look: Look, *, cloud: bool = False) -> Profile:
    """The nodes' common profile. `cloud`: somebody says so, whatever the evidence shows."""
    name, why = _provider(facts, look)
    if cloud and name is None:
        name, why = A_CLOUD, "told"
    rack = any(_RACK.search(gpu.name or "") for gpu in facts.all(Gpu))
    return Profile(cloud=name, why=why, rack_domain=rack)


def _provider(facts: Facts, look: Look) -> tuple[str | None, str]:
    for machine in facts.all(Machine):
        if machine.node is not None and of_job(machine.node, look) is None:
            continue
        for words, name in PROVIDERS:
            if words in machine.words:
                return name, machine.words
    if any(flavour.kind == "efa" for flavour in facts.all(FabricFlavour)):
        return "AWS", "EFA devices"
    return None, ""
