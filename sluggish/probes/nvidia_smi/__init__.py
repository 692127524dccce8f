"""`nvidia-smi -q -x`: every GPU of the node as the driver describes it, and how the call failed.

Shows: recovery action, ECC, row remapping, throttle reasons, PCIe link, fabric state, power,
processes. Rights: any user; other users' process names may be hidden. Cost: 1-3 s with persistence
mode, up to 30 s without (each call then initialises the driver), one call a node.

Also read: `nvidia-smi -q`, the default table (both layouts), one-shot query CSV; and the lists of
`-L`, `nvlink`, `topo -m`, `pmon`, `--query-compute-apps`, which do not tell how the GPUs are.

Traps (docs/probes/nvidia_smi.md): a call that does not return is evidence by itself and is never
repeated; on a lost GPU some versions list the healthy ones and exit 0 with the loss on stderr only;
`Unknown Error` in a field is trouble, `N/A` is not; inside a cgroup only the job's GPUs are listed
and the index starts at 0 again, so uuid and PCI address are the keys.
"""

from collections.abc import Iterator
from dataclasses import replace

from sluggish.facts.gpu import Gpu, GpuApps, GpuCount, GpuLinks, SmiFailure
from sluggish.facts.origin import InPart, Origin
from sluggish.probes.nvidia_smi import failures, lists, query_csv, query_text, query_xml, table
from sluggish.probes.nvidia_smi.report import Report

ID = "nvidia_smi"
COMMAND = "nvidia-smi -q -x"
FACTS: tuple[type, ...] = (Gpu, GpuCount, SmiFailure, GpuLinks, GpuApps)
BINARY = False

_MAX_CHARS = 64 * 1024 * 1024
_FORMS = (query_xml, query_text, table, lists, query_csv)


def sniff(head: bytes) -> bool:
    """Whether a loose file is one of the forms, or nothing but nvidia-smi's error text.

    Job logs often begin with the table: a file with many other lines is not ours.
    """
    text = head.decode("utf-8", "replace")
    body = failures.behind(text)
    return any(form.is_all(body) for form in _FORMS) or failures.is_all(text)


def parse(text: str, origin: Origin) -> Iterator[Gpu | GpuCount | SmiFailure | GpuLinks | GpuApps]:
    """GPUs, how many there are, and failures. GPUs of an answer that was cut come before the error.

    Raises ValueError where the text is none of the forms, where nvidia-smi failed altogether, and,
    after its complete GPUs, where the text ends too early: such an answer never counts GPUs.
    """
    if len(text) > _MAX_CHARS:
        raise ValueError("expected nvidia-smi output, found more than 64 MiB of text")
    troubles = tuple(failures.read(text, origin))
    yield from troubles
    report = _read(text, origin)
    if report is None:
        fatal = failures.fatal(troubles)
        if fatal:
            raise ValueError(f"expected an answer of nvidia-smi, it failed: {fatal}")
        raise ValueError("expected nvidia-smi -q -x, -q, its table or query CSV")
    node = origin.node or report.hostname
    yield from _of_list(report, node)
    for gpu in report.gpus:
        yield replace(gpu, node=node)
    if report.cut:
        raise ValueError(f"expected {report.cut}; the text ends after {len(report.gpus)} GPUs")
    lost = any(t.kind in ("gpu_lost", "reset_required") for t in troubles)
    count = report.count(lost) if report.gpus or not report.part else None
    if count is not None:
        known = tuple(gpu.pci for gpu in report.gpus if gpu.pci)
        yield GpuCount(node=node, source="nvidia-smi", count=count, pci=known)
    if report.part:
        raise InPart(f"expected nvidia-smi -q -x too: {report.part}")
    if not report.gpus:
        raise ValueError("expected at least one GPU")


def troubles(text: str, origin: Origin) -> Iterator[SmiFailure]:
    """How the call failed, without reading the GPUs: all that a preliminary line needs."""
    yield from failures.read(text[:_MAX_CHARS], origin)


def _of_list(report: Report, node: str | None) -> Iterator[GpuCount | GpuLinks | GpuApps]:
    """A list counts for what it tells; that the GPUs are well it cannot say."""
    for links in report.links:
        yield replace(links, node=node)
    for apps in report.apps:
        yield replace(apps, node=node)
    if report.listed is not None:
        yield GpuCount(node=node, source="nvidia-smi", count=report.listed)


def _read(text: str, origin: Origin) -> Report | None:
    for form in _FORMS:
        if form.looks_like(text):
            return form.read(text, origin)
    return None
