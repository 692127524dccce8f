"""Writes a world as a bundle: the manifest and every probe's raw text."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from .clock import iso
from .render import collective, fabric, host, joblog, kernel, nvidia, slurm
from .world import Node, World

COMMANDS = {
    "kernel_log": "journalctl -k -b -o short-unix --no-pager", "nvidia_smi": "nvidia-smi -q -x",
    "ibstat": "ibstat", "ibstatus": "ibstatus",
    "sockets": "ss -tuinop | sed 's/ *$//' | head -n 40000", "ibv_devinfo": "ibv_devinfo -v",
    "topology": "scontrol show topology",
    "slurm_job": "scontrol -o show job {job}", "slurm_node": "scontrol -o show node {nodes}",
    "sacct": "sacct -D -P -j {job} -o JobID,JobIDRaw,State,NodeList,Start,End,ExitCode,Reason",
    "squeue": "squeue -t running,completing,suspended,stopped -w {nodes} -o '%i|%A|%U|%u|%T|%N'",
    "gpu_samples": "nvidia-smi --query-gpu=timestamp,index,pci.bus_id,uuid,utilization.gpu,"
    "utilization.memory,power.draw,enforced.power.limit,clocks.sm,clocks.max.sm,memory.used,"
    "temperature.gpu,clocks_throttle_reasons.active --format=csv -l 1",
}  # fmt: skip


def files(world: World) -> dict[str, bytes]:
    """Every file of the bundle by its path, the manifest included."""
    out: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    for node in world.nodes:
        _node(world, node, out, rows)
    _job(world, out, rows)
    _ranks(world, out, rows)
    manifest = {
        "schema": 1,
        "tool_version": "0.1.0",
        "taken_at": iso(world.taken_at),
        "job_id": world.job_id,
        "nodes": [_clock(world, n) for n in world.nodes],
        "evidence": rows,
    }
    text = json.dumps(manifest, indent=1)
    return {"manifest.json": text.encode() + b"\n", **out}


def _clock(world: World, n: Node) -> dict[str, Any]:
    if n.error:
        keys = ("clock_offset_s", "clock_error_s", "now", "uptime_s", "boot_id")
        return {"name": n.name, "error": n.error, **dict.fromkeys(keys), "utc_offset_s": 0}
    now = world.taken_at - 20
    return {
        "name": n.name, "error": None, "clock_offset_s": round(n.offset_s, 4),
        "clock_error_s": n.clock_error_s, "now": iso(now + n.offset_s),
        "uptime_s": round(int(now + n.offset_s) - n.offset_s - n.boot_at, 2),
        "boot_id": n.boot_id, "utc_offset_s": n.zone_s,
    }  # fmt: skip


def _node(world: World, node: Node, out: dict[str, bytes], rows: list[dict[str, Any]]) -> None:
    late = node.smi == "stuck"
    plan: list[tuple[str, str, float, Any]] = [
        ("identity", "", -20.0, lambda: host.identity(world, node)),
        ("kernel_log", "", -19.5, lambda: kernel.text(world, node)),
        ("ib_counters", "a", -18.5, lambda: fabric.ib_counters(world, node, "a")),
        ("memory", "a", -18.4, lambda: host.memory(world, node, "a")),
        ("rank_procs", "a", -18.2, lambda: host.rank_procs(world, node, "a")),
        ("mounts", "", -18.0, lambda: host.mounts(world, node)),
        ("sockets", "", -17.95, lambda: host.sockets(world, node)),
        ("ib_ports", "", -17.9, lambda: fabric.ib_ports(node)),
        ("ibstat", "", -17.8, lambda: fabric.ibstat(node)),
        ("ibstatus", "", -17.7, lambda: fabric.ibstatus(node)),
        ("ibv_devinfo", "", -17.6, lambda: fabric.ibv_devinfo(node)),
        ("gpu_bus", "", -17.5, lambda: nvidia.bus(node)),
        ("slingshot", "", -17.3, lambda: fabric.slingshot(node)),
        ("imex", "", -17.2, lambda: nvidia.imex(world, node)),
        ("nvidia_smi", "", -17.0, lambda: None if late else nvidia.smi(world, node)),
        ("gpu_samples", "", -16.0, lambda: None if late else nvidia.samples(world, node)),
        ("ib_counters", "b", -5.4, lambda: fabric.ib_counters(world, node, "b")),
        ("memory", "b", -5.3, lambda: host.memory(world, node, "b")),
        ("rank_procs", "b", -5.2, lambda: host.rank_procs(world, node, "b")),
    ]
    for probe, sample, when, make in plan:
        if probe in world.without or (probe == "imex" and not node.rack):
            continue
        if probe == "slingshot" and world.fabric != "CXI":
            continue
        why = node.error or world.missing.get((node.name, probe))
        why = why or ("stuck" if late and probe in ("nvidia_smi", "gpu_samples") else None)
        row = _row(world, node.name, probe, sample, when + node.offset_s, why)
        if node.smi not in ("", "stuck") and probe in ("nvidia_smi", "gpu_samples"):
            make = lambda n=node: n.smi  # noqa: E731
            row["exit_code"] = 18
        if why is None:
            stem = f"nodes/{node.name}/{probe}{'.' + sample if sample else ''}"
            row["path"] = stem + ".txt"
            out[stem + ".txt"] = make().encode()
            said = nvidia.smi_stderr(node) if probe in ("nvidia_smi", "gpu_samples") else ""
            if said:
                out[stem + ".err"] = said.encode()
        rows.append(row)


def _row(
    world: World, node: str | None, probe: str, sample: str, when: float, why: str | None
) -> dict[str, Any]:
    names = slurm.fold([n.name for n in world.nodes])
    command = COMMANDS.get(probe, probe).format(job=world.job_id, nodes=names)
    return {
        "path": None, "node": node, "probe": probe, "sample": sample, "rank": None,
        "command": command, "rights": "root" if node else "user",
        "started_at": iso(world.taken_at + when),
        "duration_s": 10.2 if probe == "gpu_samples" else 0.4,
        "exit_code": 0 if why is None else None, "error": why,
    }  # fmt: skip


def _job(world: World, out: dict[str, bytes], rows: list[dict[str, Any]]) -> None:
    plan: list[tuple[str, str, float, Any]] = [
        ("slurm_job", "", -24.0, lambda: slurm.job(world)),
        ("slurm_node", "", -23.5, lambda: slurm.nodes(world)),
        ("sacct", "", -23.0, lambda: slurm.sacct(world)),
        ("topology", "", -22.5, lambda: slurm.topology(world)),
        ("squeue", "", -22.5, lambda: slurm.squeue(world)),
    ]
    if world.log and world.state != "PENDING":
        plan.append(("job_log", "", -22.0, lambda: joblog.text(world)))
    if world.ras and world.comms and world.state == "RUNNING":
        plan.append(("nccl_ras", "a", -3.0, lambda: collective.ras(world)))
        plan.append(("nccl_ras", "b", 7.5, lambda: collective.ras(world)))
    if world.manager:
        plan.append(("ibdiags", "", -15.0, lambda: fabric.ibdiags(world)))
    for probe, sample, when, make in plan:
        if probe in world.without:
            continue
        why = world.missing.get(("job", probe))
        row = _row(world, None, probe, sample, when, why)
        if why is None:
            row["path"] = f"job/{probe}{'.' + sample if sample else ''}.txt"
            out[row["path"]] = make().encode()
        rows.append(row)


def _ranks(world: World, out: dict[str, bytes], rows: list[dict[str, Any]]) -> None:
    for rank in world.ranks:
        if rank.node.error:
            continue
        if rank.recorder is not None and "flight_recorder" not in world.without:
            row = _row(world, rank.node.name, "flight_recorder", "", -1.0, None)
            row["rank"] = rank.rank
            if rank.dumps and (rank.alive or world.state != "RUNNING"):
                row["path"] = f"ranks/flight_recorder.{rank.rank}"
                out[row["path"]] = collective.dump(rank)
            else:
                row |= {"error": "not found", "exit_code": 1}
            rows.append(row)
        wanted = world.stack_ranks
        if wanted is not None and rank.rank not in wanted:
            continue
        if rank.stack and rank.alive and "stacks" not in world.without:
            row = _row(world, rank.node.name, "stacks", "", -0.5, None)
            row |= {"rank": rank.rank, "path": f"ranks/stacks.{rank.rank}.txt"}
            out[row["path"]] = host.stack(world, rank).encode()
            rows.append(row)


def write(world: World, root: Path) -> None:
    """Write the bundle as a directory."""
    for path, content in files(world).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def archive(world: World, top: str) -> bytes:
    """The bundle as a .tar.gz that is the same, byte for byte, each time."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in sorted(files(world).items()):
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as zipped:
        zipped.write(raw.getvalue())
    return packed.getvalue()
