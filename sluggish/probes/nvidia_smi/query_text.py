"""`nvidia-smi -q`: the same facts as the XML, indented text. Spelled like the XML for `build`."""

import re
from functools import lru_cache

from sluggish.facts import smi_values as v
from sluggish.facts.origin import Origin
from sluggish.probes.nvidia_smi.report import Report, build, refuse_other_nodes, tells_no_state

# ==============NVSMI LOG==============   (nvidia_gpu_exporter, internal/captures, h200 580)
_HEADER = re.compile(r"^=+NVSMI LOG=+\s*$", re.MULTILINE)
# GPU 00000000:83:00.0                    (same capture)
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z")
_LONGEST = 400
_DEPTH = 8


def looks_like(text: str) -> bool:
    """Its heading, a line of its own."""
    return _HEADER.search(text) is not None


def is_all(text: str) -> bool:
    """Whether a file's head is this and not a log that holds it."""
    match = _HEADER.search(text[:2000])
    return match is not None and text[: match.start()].count("\n") < 10


def read(text: str, origin: Origin) -> Report:
    """The last log of the text; one that was cut is told by its last GPU's missing process list."""
    blocks = _HEADER.split(text)[1:]
    refuse_other_nodes(blocks)
    reader = _Reader()
    for line in blocks[-1].splitlines():
        reader.line(line[:_LONGEST])
    at = v.moment(reader.head.get("timestamp"), origin.utc_offset_s)
    driver = v.value(reader.head.get("driver_version"))
    attached = v.whole(reader.head.get("attached_gpus"))
    whole = attached is None or attached == len(reader.gpus)
    gpus = tuple(
        build(record, processes, index=i if whole else None, driver=driver, at=at)
        for i, (record, processes) in enumerate(reader.gpus)
    )
    every = [path for record, _ in reader.gpus for path in record]
    part = "this part of -q says nothing of their state" if tells_no_state(every) else ""
    return Report(gpus=gpus, attached=attached, cut=_cut(reader), part=part)


def _cut(reader: "_Reader") -> str:
    """Each section has the same headings: a last one without the first one's end was cut."""
    if not reader.gpus:
        return "a `GPU 0000...` section"
    whole_query = "product_name" in reader.gpus[0][0]
    if whole_query and reader.gpus[-1][1] is None:
        return "the process list of the last GPU"
    return ""


@lru_cache(maxsize=4096)
def _name(key: str) -> str:
    """The same two hundred names stand below every GPU."""
    return re.sub(r"[ .]+", "_", key.strip().lower())


class _Reader:
    """Turns indentation into paths."""

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.gpus: list[tuple[dict[str, str], list[dict[str, str]] | None]] = []
        self._stack: list[tuple[int, str]] = []

    def line(self, line: str) -> None:
        bare = line.strip()
        if not bare:
            return
        if line[0] == "G" and (match := _GPU.match(line)):
            self.gpus.append(({"id": match[1]}, None))
            self._stack = []
            return
        key, colon, text = bare.partition(" : ")
        if not colon and bare.endswith(" :"):
            key, colon = bare[:-2], ":"
        name = _name(key)
        if not self.gpus:
            if colon and len(self.head) < 32:
                self.head[name] = text.strip()
            return
        self._field(len(line) - len(line.lstrip()), name, text.strip() if colon else None)

    def _field(self, indent: int, name: str, text: str | None) -> None:
        if indent == 0:  # an error line between two GPUs, not a field
            return
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        record, processes = self.gpus[-1]
        if name == "processes":
            self.gpus[-1] = (record, [])
            self._stack = [(indent, name)]
            return
        inside = [part for _, part in self._stack]
        if inside[:1] == ["processes"] and processes is not None:
            if name == "process_id" and len(processes) < 4000:
                processes.append({})
            if processes and text is not None:
                processes[-1][name] = text
        elif text is not None:
            # HW Thermal Slowdown stands one level below HW Slowdown and is a reason by itself
            if inside and inside[0].startswith("clocks_") and inside[0].endswith("_reasons"):
                inside = inside[:1]
            record["/".join([*inside, name])] = text
        if len(self._stack) < _DEPTH:
            self._stack.append((indent, name))
