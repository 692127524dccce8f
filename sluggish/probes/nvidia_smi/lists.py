"""What nvidia-smi prints beside its report: `-L`, `nvlink -s`, `nvlink -e`, `topo -m`, `pmon`,
`--query-compute-apps`. Each tells one thing; none of them tells how the GPUs are.

Forms: nvidia_gpu_exporter, internal/captures (H200, driver 580); gpud, fabric-manager testdata
(A100); names of NVLink 5 counters as driver 595 prints them on B300 (awslabs' notes on NVLink).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import GpuApps, GpuLinks, GpuProcess
from sluggish.facts.origin import Origin
from sluggish.probes.nvidia_smi.report import Report
from sluggish.text import strip_ansi

_LONGEST = 4096
_MOST = 4096
# GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555550)
_GPU = re.compile(r"GPU (\d{1,3}): (\S.{0,80}?) \(UUID: (GPU-[0-9a-fA-F-]{36})\) *\Z")
#   MIG 3g.40gb     Device  0: (UUID: MIG-...)
_MIG = re.compile(r"\s{1,8}MIG \S{1,16} +Device +\d{1,3}: \(UUID: MIG-\S{1,80}\)\s*\Z")
# 	 Link 0: 26.562 GB/s      	 Link 1: <inactive>
_LINK = re.compile(r"\s{0,12}Link (\d{1,2}): (?:(\d{1,4}(?:\.\d{1,4})?) GB/s|(<inactive>))\s*\Z")
# 	 Link 0: Replay Errors: 0      	 Link 14: Link recovery failed events: 3
# 	 Link 0: Effective BER: 15e-255
_COUNT = re.compile(r"\s{0,12}Link (\d{1,2}): ([A-Z][A-Za-z0-9 -]{2,60}): (\S{1,24})\s*\Z")
# NVML: Unable to retrieve NVLink information as all links are inActive
_NONE = re.compile(r"\s{0,12}NVML: Unable to retrieve NV[Ll]ink information as all links are ")
_RECOVERED = ("link recovery successful events", "total link recovery events", "recovery errors",
              "recovery error")  # fmt: skip
_FAILED = "link recovery failed events"
_ERROR = "Unable to determine the device handle"
# GPU0	 X 	NV18	PIX	0-47	0		N/A
_BONDED = re.compile(r"NV(\d{1,3})\Z")
_APP_NAMES = frozenset(
    {"timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "name",
     "used_gpu_memory", "used_memory"}
)  # fmt: skip


def looks_like(text: str) -> bool:
    """Whether one of these forms stands somewhere in the text."""
    return _kind(text[:65536]) is not None


def is_all(text: str) -> bool:
    """Whether a file's head is one of them: nearly every line must be of its form."""
    return looks_like(text)


def read(text: str, origin: Origin) -> Report:
    """The one thing that it tells; `Report.part` says which and that the rest is not known."""
    kind = _kind(text[:65536])
    if kind == "links":
        return _of_links(text)
    if kind == "topology":
        links = tuple(_of_topology(_lines(text)))
        return Report(gpus=(), links=links, part="topo -m tells only which links there are")
    if kind == "processes":
        apps = tuple(_of_pmon(_lines(text)) or _of_csv(_lines(text)))
        return Report(gpus=(), apps=apps, part="a list of processes tells only who runs where")
    raise ValueError("expected nvidia-smi -L, nvlink, topo -m, pmon or --query-compute-apps")


def _lines(text: str) -> list[str]:
    kept = (line.rstrip("\r") for line in text.split("\n"))
    return [line[:_LONGEST] for line in kept if line.strip() and _ERROR not in line]


def _kind(text: str) -> str | None:
    first = text[:_LONGEST].lstrip("\r\n").partition("\n")[0]
    if not ("GPU" in first or "gpu" in first or _ERROR in first):
        return None  # most files end here
    lines = _lines(text)
    if not lines:
        return None
    if _GPU.match(lines[0]) and _nearly_all(map(_of_the_list, lines)):
        return "links"
    first = strip_ansi(lines[0])
    if first[:1].isspace() and first.split()[:1] == ["GPU0"] and _matrix(lines):
        return "topology" if _nearly_all(map(_of_the_matrix, lines)) else None
    names = _app_names(lines[0])
    if names and _nearly_all(line.count(",") >= len(names) - 1 for line in lines):
        return "processes"
    if _pmon_names(lines[0]) and _nearly_all(map(_of_pmon_form, lines)):
        return "processes"
    return None


def _nearly_all(marks: Iterable[bool]) -> bool:
    held = list(marks)
    return sum(held) >= 0.9 * len(held)


def _of_the_list(line: str) -> bool:
    return any(p.match(line) for p in (_GPU, _MIG, _LINK, _COUNT, _NONE)) or "P2P" in line


def _of_links(text: str) -> Report:
    found: dict[int, GpuLinks] = {}
    sliced, index = False, -1
    for line in _lines(text):
        if gpu := _GPU.match(line):
            index = int(gpu[1])
            if index in found and found[index].uuid != gpu[3]:
                raise ValueError(f"expected the answer of one node, found two GPUs {index}")
            found[index] = GpuLinks(node=None, index=index, uuid=gpu[3])
        else:
            sliced = sliced or _MIG.match(line) is not None
            found[index] = _with(found[index], line)
    told = tuple(one for one in found.values() if one.active is not None or one.counted)
    if told or any(_NONE.match(line) for line in _lines(text)):
        return Report(gpus=(), links=told, part="nvlink tells only how the links are")
    part = "-L tells only which GPUs there are"
    # Slurm counts instances of a board; a list without its first line was cut
    counted = not sliced and 0 in found
    return Report(gpus=(), listed=len(found) if counted else None, part=part)


def _with(one: GpuLinks, line: str) -> GpuLinks:
    if state := _LINK.match(line):
        down = (*one.inactive, int(state[1])) if state[3] else one.inactive
        return replace(one, active=(one.active or 0) + (state[3] is None), inactive=down)
    if count := _COUNT.match(line):
        name, value = count[2].lower(), v.whole(count[3])
        link = int(count[1])
        if name == _FAILED and value:
            one = replace(one, failed=(*one.failed, (link, value)))
        elif name in _RECOVERED and value and link not in dict(one.recovered):
            one = replace(one, recovered=(*one.recovered, (link, value)))
        return replace(one, counted=True)
    return one


def _matrix(lines: list[str]) -> bool:
    return any(_matrix_begins(line) for line in lines[1:3])


def _of_the_matrix(line: str) -> bool:
    return line[0].isspace() or line.startswith(("GPU", "NIC", "mlx5_", "Legend:", "\x1b"))


def _matrix_begins(line: str) -> bool:
    return line.split()[:2] == ["GPU0", "X"]


def _of_topology(lines: list[str]) -> Iterator[GpuLinks]:
    """Bonded links of each GPU to all its peers together."""
    columns = strip_ansi(lines[0]).split("\t")
    gpus = [i for i, name in enumerate(columns) if re.fullmatch(r"GPU\d{1,3}", name.strip())]
    if sum(_matrix_begins(line) for line in lines) != 1:
        raise ValueError("expected one matrix of one node")
    for line in lines[1:]:
        cells = strip_ansi(line).split("\t")
        name = cells[0].strip()
        if not re.fullmatch(r"GPU\d{1,3}", name) or len(cells) <= max(gpus, default=0):
            continue
        bonded = [m for i in gpus if (m := _BONDED.match(cells[i].strip()))]
        yield GpuLinks(node=None, index=int(name[3:]), active=sum(int(m[1]) for m in bonded))


def _pmon_names(line: str) -> list[str] | None:
    """`# gpu         pid   type     sm    mem ... command`; under -o DT Date and Time before it."""
    names = line.lstrip("# ").lower().split()
    known = line.startswith("#") and {"gpu", "pid", "type", "command"} <= set(names)
    return names if known else None


def _of_pmon_form(line: str) -> bool:
    return line[0] in "# 0123456789"


def _of_pmon(lines: list[str]) -> list[GpuApps]:
    names = _pmon_names(lines[0])
    found: dict[int, dict[int, GpuProcess]] = {}
    for line in lines[1:] if names else ():
        cells = line.split(maxsplit=len(names or ()) - 1)
        row = dict(zip(names or (), (cell.strip() for cell in cells), strict=False))
        if line.startswith("#") or not row.get("gpu", "").isdecimal() or len(found) >= _MOST:
            continue
        here = found.setdefault(int(row["gpu"]), {})
        pid = v.whole(row.get("pid"))
        if pid is not None and len(here) < _MOST:
            kind, name = v.value(row.get("type")), v.value(row.get("command"))
            here[pid] = GpuProcess(pid=pid, name=name, kind=kind, memory_mib=v.whole(row.get("fb")))
    return [
        GpuApps(node=None, index=index, processes=tuple(here.values()))
        for index, here in sorted(found.items())
    ]


def _app_names(line: str) -> list[str] | None:
    """`gpu_uuid, pid, process_name, used_gpu_memory [MiB]`"""
    names = [cell.partition("[")[0].strip().lower() for cell in line.split(",")]
    placed = {"gpu_uuid", "gpu_bus_id"} & set(names)
    return names if placed and "pid" in names and set(names) <= _APP_NAMES else None


def _of_csv(lines: list[str]) -> list[GpuApps]:
    names = _app_names(lines[0]) or []
    found: dict[tuple[str | None, str | None], dict[int, GpuProcess]] = {}
    for line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        row = dict(zip(names, cells, strict=False))
        pid, uuid = v.whole(row.get("pid")), v.value(row.get("gpu_uuid"))
        pci = v.pci(row.get("gpu_bus_id"))
        if len(cells) != len(names) or pid is None or not (uuid or pci) or len(found) >= _MOST:
            continue
        used = v.whole(row.get("used_gpu_memory") or row.get("used_memory"))
        name = v.value(row.get("process_name") or row.get("name"))
        here = found.setdefault((uuid, pci), {})
        if len(here) < _MOST:
            here[pid] = GpuProcess(pid=pid, name=name, kind="C", memory_mib=used)
    return [
        GpuApps(node=None, uuid=uuid, pci=pci, processes=tuple(here.values()))
        for (uuid, pci), here in found.items()
    ]
