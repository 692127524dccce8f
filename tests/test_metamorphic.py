"""What must not change a verdict, and what must: order, names, clocks, missing evidence, old lines.

Each test changes the evidence of a story in a way whose effect on the truth is known.
"""

import pickle
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from storyroom import blame, story

import sluggish.diagnose
from sluggish.causes import Cause
from sluggish.diagnose import diagnose, gather
from sluggish.evidence.model import Bundle, Evidence
from sluggish.evidence.open import load
from sluggish.probes import PROBES
from sluggish.rules import RULES
from sluggish.verdict.model import Diagnosis
from sluggish.verdict.tree import TREE

Tell = Callable[[str], Bundle]
SEVERAL = (
    "seed", "xid79", "ib_port_down", "loader_nfs", "cgroup_oom", "python_exception",
    "nvlink_burst", "slow_gpu", "silent_node", "hca_set", "healthy",
)  # fmt: skip
FAULTS = tuple(name for name in SEVERAL if name != "healthy")


_KNOWN: dict[str, Diagnosis] = {}


@pytest.fixture
def tell(tmp_path_factory: pytest.TempPathFactory) -> Tell:
    def one(name: str) -> Bundle:
        return load([str(story(name, tmp_path_factory).path("directory"))], PROBES)

    return one


def unchanged(bundle: Bundle) -> Diagnosis:
    """The diagnosis of a story as it is, made once."""
    if bundle.path not in _KNOWN:
        _KNOWN[bundle.path] = diagnose(bundle)
    return _KNOWN[bundle.path]


def answer(found: Diagnosis) -> tuple[Any, ...]:
    verdict = found.verdict
    return (
        verdict.cause,
        verdict.subtype,
        verdict.confidence.level,
        sorted(str(sorted(place.items(), key=str)) for place in blame(found)),
        sorted(verdict.drain_nodes),
        verdict.victims,
        verdict.onset,
    )


def with_text(item: Evidence, change: Callable[[bytes], bytes]) -> Evidence:
    """The same piece of evidence with other content."""
    if item.error and not item.size:
        return item
    content = change(item.open())

    def window(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    return replace(
        item, size=len(content), open=lambda: content, window=window if item.window else None,
        file=None,
    )  # fmt: skip


def changed(
    bundle: Bundle, change: Callable[[bytes], bytes], which: Callable[[Evidence], bool]
) -> Bundle:
    evidence = tuple(with_text(e, change) if which(e) else e for e in bundle.evidence)
    return replace(bundle, evidence=evidence)


# order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEVERAL)
def test_the_order_of_evidence_does_not_matter(tell: Tell, name: str) -> None:
    bundle = tell(name)
    shuffled = list(bundle.evidence)
    random.Random(name).shuffle(shuffled)
    other = replace(
        bundle, evidence=tuple(shuffled), nodes=bundle.nodes[::-1], clocks=bundle.clocks[::-1]
    )
    assert answer(diagnose(other)) == answer(unchanged(bundle))


# names ------------------------------------------------------------------------------------------


def _renamed(bundle: Bundle, names: dict[str, str]) -> Bundle:
    pattern = re.compile(rb"\b(" + b"|".join(re.escape(n.encode()) for n in names) + rb")\b")

    def change(content: bytes) -> bytes:
        return pattern.sub(lambda m: names[m[1].decode()].encode(), content)

    def new(node: str | None) -> str | None:
        return names.get(node, node) if node is not None else None

    evidence = [
        e if e.probe == "flight_recorder" else with_text(e, change) for e in bundle.evidence
    ]
    return replace(
        bundle,
        nodes=tuple(names[node] for node in bundle.nodes),
        clocks=tuple(replace(c, node=names[c.node]) for c in bundle.clocks),
        evidence=tuple(
            replace(e, node=new(e.node), path=change(e.path.encode()).decode()) for e in evidence
        ),
    )


@pytest.mark.parametrize("name", SEVERAL)
def test_renamed_nodes_are_blamed_by_their_new_names(tell: Tell, name: str) -> None:
    bundle = tell(name)
    first, count = unchanged(bundle), len(bundle.nodes)
    # one that folds as one list and one that does not; the order of the names is turned round
    for style in ("zz-gpu{:02d}", "rack{0}-tray{0}"):
        names = {n: style.format(count + 3 - k) for k, n in enumerate(bundle.nodes)}
        other = diagnose(_renamed(_unfolded(bundle), names))
        assert (other.verdict.cause, other.verdict.subtype) == (
            first.verdict.cause, first.verdict.subtype,
        )  # fmt: skip
        assert _places(other) == _places(first, names)
        assert sorted(other.verdict.drain_nodes) == sorted(
            names[node] for node in first.verdict.drain_nodes
        )


def _unfolded(bundle: Bundle) -> Bundle:
    """Slurm's folded node lists written out, so that names can be exchanged."""
    listed = ",".join(bundle.nodes).encode()
    folded = re.compile(rb"(?<=NodeList=)[^ \n]*\[[^ \n]*\]|(?<=\|)[\w-]+\[[\d,-]+\](?=\|)")
    return changed(
        bundle, lambda text: folded.sub(listed, text), lambda e: e.probe in ("slurm_job", "sacct")
    )


def _places(found: Diagnosis, names: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    new = names or {}
    return sorted(
        (c.rank is None, c.rank or 0, new.get(c.node or "", c.node), c.gpu_index is None,
         c.gpu_index or 0, c.hca or "")
        for c in found.verdict.culprits
    )  # fmt: skip


# missing evidence -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEVERAL)
def test_without_one_node_nothing_looks_better_and_nobody_new_is_drained(
    tell: Tell, name: str
) -> None:
    bundle = tell(name)
    whole = unchanged(bundle).verdict
    for lost in bundle.nodes:
        kept = tuple(e for e in bundle.evidence if e.node != lost)
        less = diagnose(replace(bundle, evidence=kept)).verdict
        assert less.cause is not Cause.PROGRESSING, lost
        assert set(less.drain_nodes) <= set(whole.drain_nodes), lost


@pytest.mark.parametrize("name", SEVERAL)
def test_a_node_that_did_not_answer_is_never_drained_and_nothing_looks_better(
    tell: Tell, name: str
) -> None:
    bundle = tell(name)
    whole = unchanged(bundle).verdict
    for lost in bundle.nodes:
        silent = tuple(
            replace(e, error="unreachable", size=0, open=bytes, exit_code=None)
            if e.node == lost
            else e
            for e in bundle.evidence
        )
        less = diagnose(replace(bundle, evidence=silent)).verdict
        assert less.cause is not Cause.PROGRESSING, lost
        assert set(less.drain_nodes) <= set(whole.drain_nodes) - {lost}, lost


BLINDS = (
    ("kernel_log", Cause.GPU_FAULT), ("kernel_log", Cause.MEMORY), ("kernel_log", Cause.IB_FAULT),
    ("nvidia_smi", Cause.GPU_FAULT), ("memory", Cause.MEMORY), ("rank_procs", Cause.APP_CRASH),
    ("mounts", Cause.DATA_STALL), ("slurm_node", Cause.NODE_DOWN), ("ib_ports", Cause.IB_FAULT),
)  # fmt: skip
"""Probe, and a cause that cannot be ruled out where it did not run."""


@pytest.mark.parametrize(("probe", "cause"), BLINDS)
def test_without_one_probe_on_one_node_its_cause_is_not_ruled_out(
    tell: Tell, probe: str, cause: Cause
) -> None:
    for name in ("seed", "healthy"):
        bundle = tell(name)
        assert cause in {out.cause for out in unchanged(bundle).verdict.ruled_out}, name
        for node in bundle.nodes:
            kept = tuple(
                e for e in bundle.evidence
                if not (e.probe == probe and e.node in (node, None))
            )  # fmt: skip
            less = diagnose(replace(bundle, evidence=kept)).verdict
            assert cause not in {out.cause for out in less.ruled_out}, (name, node)


# history ----------------------------------------------------------------------------------------

STALE = (
    "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:{pci}): 48, pid=4242, name=python3, An uncorrectable double bit error (DBE) "
    "has been detected on GPU in the framebuffer at physAddr 0x2a4c1e00 partition 9, subpartition "
    "1.",
    "NVRM: Xid (PCI:{pci}): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1a_20000000. Fault is of type FAULT_PDE "
    "ACCESS_TYPE_VIRT_READ",
    "NVRM: Xid (PCI:{pci}): 119, pid=4242, name=python3, Timeout after 45s of waiting for RPC "
    "response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) sequence 1207 (0x20802a02 0x8).",
)


@pytest.mark.parametrize("name", [n for n in SEVERAL if n not in ("nvlink_burst",)])
def test_xids_of_last_week_change_nothing(tell: Tell, name: str) -> None:
    bundle = tell(name)
    pci = re.compile(rb"/devices/0000:([0-9a-f]{2}):00\.0/vendor:0x10de")
    buses = {
        e.node: pci.findall(e.open()) for e in bundle.evidence if e.probe == "gpu_bus" and e.size
    }

    def older(item: Evidence) -> Evidence:
        if item.probe != "kernel_log" or not item.size:
            return item
        head, _, tail = item.open().partition(b"\n")
        stamp = float(head.split()[0])  # journalctl -o short-unix
        lines = [head]
        for k, text in enumerate(STALE):
            bus = buses[item.node][k].decode()
            words = text.format(pci=f"0000:{bus}:00")
            lines.append(f"{stamp + 60 + k:.6f} {item.node} kernel: {words}".encode())
        return with_text(item, lambda _: b"\n".join(lines) + b"\n" + tail)

    aged = replace(bundle, evidence=tuple(older(e) for e in bundle.evidence))
    with_history = diagnose(aged)
    assert answer(with_history) == answer(unchanged(bundle))
    told = [f for f in with_history.findings if f.rule.startswith("GPU-") and "Xid 79" in f.says]
    assert told, "the old lines were not read at all"


# clocks -----------------------------------------------------------------------------------------

_ISO = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.mark.parametrize("name", SEVERAL)
def test_a_node_s_wrong_clock_that_was_measured_changes_nothing(tell: Tell, name: str) -> None:
    shift_s = -412.0 if SEVERAL.index(name) % 2 else 95.0
    bundle = tell(name)
    first = unchanged(bundle)
    other = diagnose(_shifted(bundle, bundle.nodes[-1], shift_s))
    assert answer(other)[:6] == answer(first)[:6]
    was, now = first.verdict.onset, other.verdict.onset
    assert (was is None) == (now is None)
    if was and now:  # below half a second no clock is put right
        assert abs(now.latest - was.latest) < timedelta(seconds=0.5)
        assert now.source == was.source


def _shifted(bundle: Bundle, node: str, by: float) -> Bundle:
    """Everything that this node's own clock stamped, later by `by` seconds."""
    move = timedelta(seconds=by)
    clocks = tuple(
        replace(c, offset_s=(c.offset_s or 0) + by, now=c.now + move)
        if c.node == node and c.now
        else c
        for c in bundle.clocks
    )
    how = {"kernel_log": _unix, "identity": _unix, "gpu_samples": _smi, "flight_recorder": _dump}

    def late(item: Evidence) -> Evidence:
        if item.node != node or not item.size or item.probe not in how:
            return _late_start(item, node, move)
        shift = how[item.probe]
        return _late_start(with_text(item, lambda text: shift(text, by)), node, move)

    evidence = (_own_lines(late(e), node, by) for e in bundle.evidence)
    return replace(bundle, clocks=clocks, evidence=tuple(evidence))


def _late_start(item: Evidence, node: str, move: timedelta) -> Evidence:
    if item.node != node or item.started_at is None:
        return item
    return replace(item, started_at=item.started_at + move)


def _unix(text: bytes, by: float) -> bytes:
    return re.sub(
        rb"(?m)^(\d{10})(\.\d+)", lambda m: b"%d%s" % (int(m[1]) + int(by), m[2]), text
    )  # fmt: skip


def _smi(text: bytes, by: float) -> bytes:
    def later(m: re.Match[bytes]) -> bytes:
        at = datetime.strptime(m[0].decode(), "%Y/%m/%d %H:%M:%S") + timedelta(seconds=by)
        return at.strftime("%Y/%m/%d %H:%M:%S").encode()

    return re.sub(rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d", later, text)


def _dump(raw: bytes, by: float) -> bytes:
    top = pickle.loads(raw)
    for entry in top["entries"]:
        for key, value in entry.items():
            if key.startswith("time_") and value:
                entry[key] = value + int(by * 1e9)
    return pickle.dumps(top, protocol=2)


# [rank9]:[E1120 17:04:00.123456789 ProcessGroupNCCL.cpp:685] ...   by the process's own clock
_GLOG = re.compile(rb"(?m)^((?:\d+: )?\[rank(\d+)\]:\[[EWI])(\d{3,4}) (\d\d:\d\d:\d\d)")
_NCCL = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] ([\w-]+)(?=:\d+:\d+ \[)")


def _own_lines(item: Evidence, node: str, by: float) -> Evidence:
    """Lines of the job's log that a process of the node stamped itself."""
    if item.probe != "job_log" or not item.size:
        return item
    text = item.open()
    pairs = re.findall(
        rb"(?m)^(?:\d+: )?([\w-]+):\d+:\d+ \[\d\] NCCL INFO .* rank (\d+) nranks", text
    )
    ranks = {int(rank) for host, rank in pairs if host.decode() == node}

    def glog(m: re.Match[bytes]) -> bytes:
        if int(m[2]) not in ranks:
            return m[0]
        stamp = f"2026{m[3].decode():>04} {m[4].decode()}"
        at = datetime.strptime(stamp, "%Y%m%d %H:%M:%S") + timedelta(seconds=by)
        return m[1] + f"{at.month}{at.day:02d} {at:%H:%M:%S}".encode()

    def nccl(m: re.Match[bytes]) -> bytes:
        if m[2].decode() != node:
            return m[0]
        at = datetime.strptime(m[1].decode(), "%Y-%m-%d %H:%M:%S") + timedelta(seconds=by)
        return f"[{at:%Y-%m-%d %H:%M:%S}] {m[2].decode()}".encode()

    return with_text(item, lambda _: _NCCL.sub(nccl, _GLOG.sub(glog, text)))


# victims ----------------------------------------------------------------------------------------

_RECORD = re.compile(rb"(?m)^5?.*Watchdog caught collective operation timeout.*$")


def test_who_reports_the_timeout_first_is_nobody_s_fault(tell: Tell) -> None:
    """Reports of victims, in any order and at permuted times, leave the verdict as it is (G1)."""
    for name in ("python_exception", "timeout_short"):
        bundle = tell(name)
        first = unchanged(bundle)
        for seed in range(3):
            other = changed(bundle, _permuter(seed), lambda e: e.probe == "job_log")
            assert answer(diagnose(other))[:5] == answer(first)[:5], (name, seed)


def _permuter(seed: int) -> Callable[[bytes], bytes]:
    stamp = re.compile(rb"(\[[EWI]\d{3,4} )(\d\d:\d\d:\d\d\.\d+)")

    def permute(text: bytes) -> bytes:
        lines = text.split(b"\n")
        places = [
            k for k, line in enumerate(lines)
            if b"Watchdog caught collective" in line and b"[Rank" in line and b"PG ID" not in line
        ]  # fmt: skip
        assert len(places) > 5
        stamps = [m[2] for k in places if (m := stamp.search(lines[k]))]
        order = list(range(len(places)))
        random.Random(seed).shuffle(order)
        spoken = [stamp.sub(lambda m, s=stamps[o]: m[1] + s, lines[places[n]], count=1)
                  for n, o in enumerate(order)]  # fmt: skip
        random.Random(seed + 100).shuffle(spoken)
        for place, line in zip(places, spoken, strict=True):
            lines[place] = line
        return b"\n".join(lines)

    return permute


# rules ------------------------------------------------------------------------------------------

CARRIES = {
    "CFG-ENV": "nccl_env_odd",
    "CFG-GID": "hca_gid",
    "CFG-HCASET": "hca_set",
    "CFG-IFACE": "nccl_init_hang",
    "CFG-LAUNCH": "duplicate_gpu",
    "CFG-LIMITS": "shm_full",
    "CFG-NCCLBUG": "library_bug",
    "CFG-NVLS": "nvls_refused",
    "CFG-P2P": "p2p_acs",
    "CFG-PORTS": "roce_gid_odd",
    "CFG-TIMEOUT": "timeout_short",
    "CFG-VERSIONS": "driver_mismatch",
    "APP-EXCEPTION": "python_exception",
    "APP-EXIT": "left_early",
    "APP-SIGNAL": "dead_rank_segfault",
    "DATA-IMPORT": "import_storm",
    "DATA-LOADER": "loader_lock",
    "DATA-NETWORK": "object_store",
    "DATA-STEPS": "data_steps",
    "DATA-STORAGE": "loader_nfs",
    "DATA-TARGET": "ost_lost",
    "GPU-APP-XID": "app_xid",
    "GPU-DOMAIN": "imex_broken",
    "GPU-FABRIC": "fabric_not_up",
    "GPU-LOST": "gpu_vanished",
    "GPU-CUDA": "remap_denied",
    "GPU-MISSING": "missing_denied",
    "GPU-RECOVERY": "nvlink_denied",
    "GPU-REMAP": "remap_denied",
    "GPU-STUCK": "gsp_denied",
    "GPU-SXID": "nvswitch",
    "GPU-XID": "xid79",
    "HANG-SPLIT": "unprepared",
    "IB-COUNTERS": "link_errors",
    "IB-FATAL": "hca_dead",
    "IB-FLAP": "link_flap",
    "IB-LEAF": "uplink_lost",
    "IB-NCCL": "peer_unreachable",
    "IB-PORT": "ib_port_down",
    "IB-RATE": "link_degraded",
    "IB-SM": "subnet_manager_gone",
    "JOB-STATE": "completed",
    "MEM-CUDA": "cuda_oom",
    "MEM-GROWTH": "memory_growth",
    "MEM-OOM": "cgroup_oom",
    "MEM-STEP": "step_oom",
    "NODE-DOWN": "node_failed",
    "NODE-FAULT": "host_memory_fault",
    "NODE-REBOOT": "node_rebooted",
    "PROC-GONE": "vanished_rank",
    "PROG-CKPT": "rank0_checkpoint",
    "PROG-EVAL": "evaluation",
    "PROG-INIT": "first_step_compile",
    "PROG-STEPS": "healthy",
    "SHUTDOWN-HANG": "shutdown_hang",
    "SLOW-GPU": "slow_gpu",
    "SLOW-HOST": "slow_host",
    "SLOW-LINK": "slow_link",
    "SLOW-RANK": "late_rank",
    "START-LOCK": "stale_lock",
    "START-RENDEZVOUS": "rendezvous_63_of_64",
    "SYNC-CYCLE": "mesh_inversion",
    "SYNC-MISSING": "seed_cpu_barrier",
    "SYNC-OP": "seed",
    "SYNC-SIZE": "size_mismatch",
    "SYNC-STALL": "comm_wedged",
    "SYNC-TIE": "tie",
    "SYNC-UNSEEN": "unseen",
}
"""Rule -> a story whose verdict rests on it."""
SUPPORT = {
    "DATA-AUTH": "weak: the login path may hang for reasons of its own",
    "DATA-CKPT": "the mount that hangs is named first",
    "GPU-ECC": "weak without the kernel's or CUDA's line, and those say more",
    "GPU-ECHO": "context by nature",
    "GPU-LEFTOVER": "housekeeping by nature",
    "HANG-PARKED": "says that it hangs, as HANG-SPLIT does",
    "HANG-SPIN": "says that it hangs, as HANG-SPLIT does",
    "IB-ASYNC": "a port's own state and the peers' vote say the same",
    "IB-QUIET": "context by nature",
    "IB-REPORT": "weak: a mailed report does not tell when",
    "NODE-CLOCK": "context by nature",
    "NODE-UNKILLABLE": "a consequence by nature",
    "NODE-SILENT": "a node that does not answer is never a cause by itself",
    "PROC-ODD": "a hint",
    "PROC-STACK": "a hint",
    "SYNC-DEVICE": "unknown: where it hangs, not why",
    "SYNC-RAS": "context by nature",
    "SYNC-WATCHDOG": "says that it hangs; the lines themselves go into the graph",
}
"""Rules that the tree listens to and on which no verdict rests alone, and why."""


def test_every_rule_of_the_tree_carries_a_story_or_only_supports() -> None:
    listened = {rule for question in TREE for rule in question.listens}
    assert not set(CARRIES) & set(SUPPORT)
    assert listened == set(CARRIES) | set(SUPPORT)


@pytest.mark.parametrize("rule_id", CARRIES)
def test_without_a_rule_the_story_that_rests_on_it_reads_otherwise(
    tell: Tell, rule_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tell(CARRIES[rule_id])
    facts = gather(bundle, PROBES)  # no rule has a part in it: it need not be made twice
    monkeypatch.setattr(sluggish.diagnose, "gather", lambda *_: facts)
    before = _result(diagnose(bundle))
    rest = tuple(rule for rule in RULES if rule.id != rule_id)
    assert len(rest) == len(RULES) - 1
    monkeypatch.setattr(sluggish.diagnose, "RULES", rest)
    assert _result(diagnose(bundle)) != before


def _result(found: Diagnosis) -> tuple[Any, ...]:
    verdict = found.verdict
    return answer(found)[:5], verdict.families, tuple(_said(found.verdict.culprits))


def _said(culprits: Iterable[Any]) -> Iterable[str]:
    return (f"{c.rank} {c.node} {c.doing}" for c in culprits)
