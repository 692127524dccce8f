"""`nvidia-smi -q -x`, document types v10 to v13 and none. No DTD ever reaches the XML parser."""

from xml.parsers import expat

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import Gpu
from sluggish.facts.origin import Origin
from sluggish.probes.nvidia_smi.report import Report, build, refuse_other_nodes

_ROOT = "<nvidia_smi_log>"
_END = "</nvidia_smi_log>"
_ABOVE = 10
"""Lines over the document: a prompt and the command, a fence, a heading."""
_DEPTH = 8
_FIELDS = 4000
"""Bounds of one GPU's record: real ones have 5 levels and about 250 fields."""


def looks_like(text: str) -> bool:
    """Its root element, with or without the document type before it."""
    return _ROOT in text


def is_all(text: str) -> bool:
    """Whether a file's head is this and not a log that holds it."""
    above, begins, _ = text.partition("<!DOCTYPE nvidia_smi_log")
    if not begins:
        above, begins, _ = text.partition(_ROOT)
    return bool(begins) and above.count("\n") <= _ABOVE


def read(text: str, origin: Origin) -> Report:
    """The last complete document of the text, else what is complete of the last one."""
    # the document type (and any entity it declares) stands before the root and is left behind
    documents = [_ROOT + part for part in text.split(_ROOT)[1:]]
    refuse_other_nodes(documents)
    complete = [d for d in documents if _END in d]
    body = (complete or documents)[-1]
    reader = _Reader()
    broken = reader.feed(_without_clocks(body.split(_END)[0]))
    at = v.moment(reader.head.get("timestamp"), origin.utc_offset_s)
    driver = v.value(reader.head.get("driver_version"))
    attached = v.whole(reader.head.get("attached_gpus"))
    whole = attached is None or attached == len(reader.gpus)
    gpus: list[Gpu] = []
    for position, (record, processes) in enumerate(reader.gpus):
        # the XML has no index: the position is it, but only where no GPU is left out
        index = position if whole else None
        gpus.append(build(record, processes, index=index, driver=driver, at=at))
    cut = "" if complete and not broken else "the end of the XML document"
    return Report(gpus=tuple(gpus), attached=attached, cut=cut)


def _without_clocks(body: str) -> str:
    """Drop the lists of supported clocks: half of the text and never a fact."""
    first, *rest = body.split("<supported_clocks>")
    return first + "".join(part.partition("</supported_clocks>")[2] for part in rest)


class _Reader:
    """expat handlers that keep flat records `path -> text`; nesting costs nothing."""

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.gpus: list[tuple[dict[str, str], list[dict[str, str]] | None]] = []
        self._path: list[str] = []  # of each open element, from below its gpu
        self._deep = 0
        self._text: list[str] = []
        self._record: dict[str, str] | None = None
        self._processes: list[dict[str, str]] | None = None

    def feed(self, body: str) -> bool:
        """Read a document without its last end tag; True if it is not well-formed."""
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._stop
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(body.encode("utf-8", "replace"), False)
        except expat.ExpatError:
            return True
        return len(self._path) != 1 or self._deep > 0  # open elements other than the root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._text.clear()
        above = len(self._path)
        if above >= _DEPTH or self._deep:
            self._deep += 1
        elif above < 2:
            self._path.append("")
            if above == 1 and name == "gpu":
                self._record = {"id": attributes.get("id", "")}
                self._processes = None
        else:
            path = f"{self._path[-1]}/{name}" if above > 2 else name
            self._path.append(path)
            if path == "processes":
                self._processes = []
            elif path == "processes/process_info" and self._processes is not None:
                self._processes.append({})

    def _stop(self, name: str) -> None:
        if self._deep:
            self._deep -= 1
            return
        path = self._path.pop()
        above = len(self._path)
        text = "".join(self._text).strip()[:200]
        self._text.clear()
        if above > 1:
            self._field(path, name, text)
        elif above == 1 and name == "gpu" and self._record is not None:
            self.gpus.append((self._record, self._processes))
            self._record = None
        elif above == 1 and len(self.head) < 32:
            self.head[name] = text

    def _field(self, path: str, name: str, text: str) -> None:
        if self._processes and path == f"processes/process_info/{name}":
            self._processes[-1][name] = text
        elif self._record is not None and self._wanted(path, text):
            self._record[path] = text

    def _wanted(self, path: str, text: str) -> bool:
        # MIG devices repeat the board's field names for a part of it
        room = self._record is not None and len(self._record) < _FIELDS
        return room and bool(text) and not f"{path}/".startswith("mig_devices/")
