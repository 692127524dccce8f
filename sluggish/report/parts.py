"""Objects that the JSON documents share: closed, and the culprit of `diagnose` and `ranks`."""

import msgspec


class Closed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object without further keys; every key is always there."""


class GpuDoc(Closed):
    index: int | None
    uuid: str | None
    pci: str | None


class CulpritDoc(Closed):
    rank: int | None
    node: str | None
    pid: int | None
    gpu: GpuDoc
    hca: str | None
    group: str | None
    seq: int | None
    operation: str | None
    doing: str | None
    source_line: str | None
