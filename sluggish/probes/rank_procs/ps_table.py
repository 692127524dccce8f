"""Tables of `ps`: `aux`, `-ef`, `-eLf`, `-eo pid,ppid,stat,wchan:32,comm,args` and the like."""

import re
from dataclasses import replace

from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin

LAST = {"COMMAND", "CMD", "ARGS"}
WEEKDAYS = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
LIMIT = 20_000

# `[DD-]hh:mm:ss` or `mm:ss`
_CPU = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})\Z", re.ASCII)
_HEADER_WORD = re.compile(r"%?[A-Z][A-Z_]*(?:/\w+)?\Z")
_PID = re.compile(r"\d{1,10}\Z", re.ASCII)
AUX = "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"
# alice  60 52.0  2.4 91147008 1604628 ?  Sl  14:27  26:31 python -m train    (rows of `ps aux`)
_AUX_ROW = re.compile(
    r"[\w.+-]{1,32} +\d{1,10} +\d{1,5}\.\d +\d{1,3}\.\d +\d{1,15} +\d{1,15} +\S{1,12} +"
    r"[DIRSTtWXZ][<NLsl+]{0,5} +\S{5,9} +\d{1,7}:\d\d +\S",
    re.ASCII,
)


def is_aux_row(line: str) -> bool:
    """A row of `ps aux`, whose header was not mailed."""
    return bool(_AUX_ROW.match(line[:400]))


def is_ps_header(line: str) -> bool:
    """All words are column names, PID is one, the last is the command; not the header of `top`."""
    words = line.split()
    known = words and words[-1] in LAST and "PID" in words
    return bool(known and len(words) > 2 and all(_HEADER_WORD.match(word) for word in words))


def table(text: str, origin: Origin) -> list[RankProcess]:
    """Processes of the first table; several rows of one pid (`-L`) are its threads."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines[:200]) if is_ps_header(line)), None)
    if start is None:
        if not any(is_aux_row(line) for line in lines[:200]):
            return []
        lines = [AUX, *(line for line in lines if is_aux_row(line))]
        start = 0
    header = lines[start]
    rows: dict[int, RankProcess] = {}
    for line in lines[start + 1 : start + 1 + LIMIT]:
        row = _row(header, line)
        if row is None:
            continue
        process = _process(row, origin)
        if process is not None:
            rows[process.pid] = _merge(rows.get(process.pid), process, row)
    return list(rows.values())


def _row(header: str, line: str) -> dict[str, str] | None:
    """Cells by column name; `COMM` is a command's short name where args follow it."""
    names = header.split()
    if len(names) > 1 and names[-2] in LAST:
        cut = header.rindex(names[-1])
        short = header.rindex(names[-2], 0, cut)
        before = line[:short].split()
        if len(before) == len(names) - 2 and line[cut - 1 : cut] in (" ", ""):
            cells = [*before, line[short:cut].strip(), line[cut:].strip()]
            return dict(zip([*names[:-2], "COMM", "ARGS"], cells, strict=True))
        names = [*names[:-2], "COMM", "ARGS"]
    cells = line.split(None, len(names) - 1)
    started = names.index("STARTED") if "STARTED" in names else -1
    if 0 <= started < len(cells) and cells[started] in WEEKDAYS:  # lstart prints five words
        cells = line.split(None, len(names) + 3)
        cells[started : started + 5] = [" ".join(cells[started : started + 5])]
    if len(cells) != len(names):
        return None
    return dict(zip(names, cells, strict=True))


def _process(row: dict[str, str], origin: Origin) -> RankProcess | None:
    if not _PID.match(row.get("PID", "")):
        return None
    args = next((row[name] for name in ("ARGS", "COMMAND", "CMD") if name in row), "")
    name = row.get("COMM") or _short_name(args)
    wchan = row.get("WCHAN", "-")
    return RankProcess(
        node=origin.node,
        pid=int(row["PID"]),
        sample=origin.sample,
        at=origin.taken_at,
        ppid=int(row["PPID"]) if _PID.match(row.get("PPID", "")) else None,
        name=name[:64],
        cmdline=args[:2000],
        state=(row.get("STAT") or row.get("S") or "")[:1] or None,
        wchan=wchan if re.match(r"[A-Za-z_][\w.]*\Z", wchan, re.ASCII) else None,
        cpu_s=_seconds(row.get("TIME", "")),
        rss_bytes=int(row["RSS"]) * 1024 if _PID.match(row.get("RSS", "")) else None,
        threads=int(row["NLWP"]) if _PID.match(row.get("NLWP", "")) else None,
    )


def _short_name(args: str) -> str:
    """`[python] <defunct>` -> python, `/usr/bin/python3 train.py` -> python3."""
    first = args.split(" ", 1)[0]
    return first.strip("[]").rpartition("/")[2] if first.startswith("/") else first.strip("[]")


def _seconds(text: str) -> float | None:
    match = _CPU.match(text)
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def _merge(old: RankProcess | None, new: RankProcess, row: dict[str, str]) -> RankProcess:
    """With `-L` every thread is a row: the process is the first, threads in D are kept."""
    base = old or new
    tid = row.get("LWP") or row.get("TID") or row.get("SPID") or ""
    if new.state != "D" or not _PID.match(tid) or int(tid) == new.pid:
        return base
    return replace(base, blocked_threads=(*base.blocked_threads, (int(tid), new.wchan or "?")))
