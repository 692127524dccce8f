"""The default table of `nvidia-smi`, layout of drivers before 530 and the wider one since."""

import re
from dataclasses import replace
from datetime import datetime

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import Gpu, GpuProcess
from sluggish.facts.origin import Origin
from sluggish.probes.nvidia_smi.report import Report

# | NVIDIA-SMI 580.173.02             Driver Version: 580.173.02     CUDA Version: 13.0     |
#                                      (nvidia_gpu_exporter, internal/captures, h200 580)
_TITLE = re.compile(
    r"^\| NVIDIA-SMI (\d[\w.]*) {1,80}(?:Driver Version: (\S{1,20}))?", re.MULTILINE
)
# |   0  NVIDIA H200                    On  |   00000000:83:00.0 Off |                    0 |
_FIRST = re.compile(r" {1,4}(\d{1,3}) {1,4}(\S.{0,60}?)? {1,40}(On|Off|N/A|ERR!) *\Z")
# | N/A   37C    P0             85W /  700W |       0MiB / 143771MiB |      0%      Default |
_SECOND = re.compile(
    r" *(?P<fan>\S{1,6}) +(?P<temp>\S{1,6}) +(?P<perf>\S{1,5}) +"
    r"(?P<draw>\S{1,8}) */ *(?P<limit>\S{1,8}) *\Z"
)
# |    0   N/A  N/A         2345      C   python3                         1012MiB |
_PROCESS = re.compile(
    r"^\| {1,8}(?P<gpu>\d{1,3}) +(?:(?:N/A|\d+) +(?:N/A|\d+) +)?(?P<pid>\d{1,10}) +"
    r"(?P<kind>C\+G|M\+C|C|G) +(?P<name>\S.*?)? +(?P<memory>\d{1,8}MiB|N/A) \|"
)


# |   3  NVIDIA A100-SXM4-80GB        Off | 00000000:4D:00.0 Off |                  ERR! |
_ROW = re.compile(
    r"^\| {1,4}\d{1,3} {1,4}\S[^|\n]{1,80}"
    r"\| {0,4}[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7] +\w+ *\|",
    re.MULTILINE,
)


def looks_like(text: str) -> bool:
    """Its title line, or a GPU's row where somebody mailed only that."""
    return _TITLE.search(text) is not None or _ROW.search(text) is not None


def is_all(text: str) -> bool:
    """Whether a file's head is this and not a job log that begins with it."""
    lines = [line for line in text.splitlines() if line.strip()]
    foreign = sum(1 for line in lines if line[0] not in "|+")
    return looks_like(text) and foreign <= 6


def read(text: str, origin: Origin) -> Report:
    """The last table of the text. Without its process part it may have been cut: no count then."""
    titles = list(_TITLE.finditer(text))
    if not titles:  # a row or two, cut out by hand: they count nothing
        gpus = _gpus([line.rstrip()[:400] for line in text.splitlines()], None, None)
        return Report(gpus=tuple(gpus), cut="the head of the table")
    title = titles[-1]
    above = text[: title.start()].rstrip("+-\r\n ").rpartition("\n")[2]
    at = v.moment(above, origin.utc_offset_s)
    lines = [line.rstrip()[:400] for line in text[title.end() :].splitlines()]
    gpus = _gpus(lines, v.value(title[2]), at)
    listed = any(line.startswith("| Processes:") for line in lines)
    cut = "" if gpus and listed else "the process part of the table"
    if listed:
        gpus = [
            replace(g, processes=_processes(lines, g.index), processes_listed=True) for g in gpus
        ]
    return Report(gpus=tuple(gpus), cut=cut)


def _gpus(lines: list[str], driver: str | None, at: datetime | None) -> list[Gpu]:
    gpus: list[Gpu] = []
    for position, line in enumerate(lines):
        if line.startswith("| Processes:"):
            break
        cells = line.strip("|").split("|")
        match = _FIRST.match(cells[0]) if len(cells) == 3 else None
        if match is None:
            continue
        following = [below.strip("|").split("|") for below in lines[position + 1 : position + 3]]
        gpus.append(_gpu(match, cells, following, driver, at))
    return gpus


def _gpu(
    match: re.Match[str],
    cells: list[str],
    following: list[list[str]],
    driver: str | None,
    at: datetime | None,
) -> Gpu:
    second = following[0] if following and len(following[0]) == 3 else ["", "", ""]
    third = following[1] if len(following) > 1 and len(following[1]) == 3 else ["", "", ""]
    reading = _SECOND.match(second[0])
    used, _, total = second[1].partition("/")
    bus = (cells[1].split() or [""])[0]
    ecc = cells[2].strip()
    util = (second[2].split() or [""])[0]
    fields = {"name": match[2] or "", "ecc": ecc, "memory": used, "utilization": util}
    if reading:
        fields |= reading.groupdict()
    return Gpu(
        node=None,
        index=int(match[1]),
        pci=v.pci(bus),
        name=v.value((match[2] or "").strip()),
        driver=driver,
        ecc_mode=False if ecc == "Off" else (True if ecc.isdecimal() else None),
        ecc_volatile_uncorrectable=v.whole(ecc),
        power_w=v.number(reading["draw"]) if reading else None,
        power_limit_w=v.number(reading["limit"]) if reading else None,
        temperature_c=v.number(reading["temp"]) if reading else None,
        utilisation_pct=v.number(util),
        memory_used_mib=v.whole(used),
        memory_total_mib=v.whole(total),
        mig=v.flag(third[2].strip()),
        errors=tuple(
            f"{name}: {v.broken(text)}" for name, text in fields.items() if v.broken(text)
        ),
        at=at,
    )


def _processes(lines: list[str], index: int | None) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=int(match["pid"]),
            name=match["name"],
            kind=match["kind"],
            memory_mib=v.whole(match["memory"]),
        )
        for line in lines
        if (match := _PROCESS.match(line)) and int(match["gpu"]) == index
    )
