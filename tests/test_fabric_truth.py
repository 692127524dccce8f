"""What is publicly known of fabric evidence, row by row (fabric_truth.yaml)."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_facts import (
    at,
    book,
    facts,
    flap,
    healthy,
    log,
    lost,
    nodes,
    onset,
    port,
    roots,
    run,
    without,
)

from sluggish.catalog.nccl import give_up_s
from sluggish.correlate.hcas import odd_nodes
from sluggish.facts import ib_words
from sluggish.facts.derived import Onset
from sluggish.facts.fabric import PortCounters
from sluggish.facts.fabric_side import SubnetManager
from sluggish.facts.host import KernelSpan, RankProcess
from sluggish.facts.log import Version
from sluggish.facts.origin import Origin
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.loglines import nccl_net
from sluggish.loglines.prefix import lines
from sluggish.probes import ibdiags, ibstat, ibv_devinfo, kernel_log
from sluggish.rules.config.network import cfg_gid

TRUTH: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "fabric_truth.yaml").read_text(encoding="utf-8")
)


def _agrees(found: list[Any], row: dict[str, Any]) -> None:
    told = {
        key: value for key, value in row.items() if key not in ("line", "level", "stamp", "fact")
    }
    if row["fact"] is None:
        assert found == []
        return
    (fact,) = found
    assert type(fact).__name__ == row["fact"]
    got = {key: getattr(fact, key) for key in told}
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in got.items()} == told


@pytest.mark.parametrize("row", TRUTH["kernel"], ids=lambda row: row["line"][:60])
def test_a_kernel_line_of_the_fabric_is_read(row: dict[str, Any]) -> None:
    text = f"{row.get('stamp', '[9.000001] ')}{row['line']}\n"
    found = [f for f in kernel_log.parse(text, Origin()) if not isinstance(f, KernelSpan)]
    _agrees(found, row)


@pytest.mark.parametrize("row", TRUTH["nccl"], ids=lambda row: row["line"][:60])
def test_a_line_of_nccl_is_read_in_the_form_of_its_version(row: dict[str, Any]) -> None:
    text = f"gpu-01:100:200 [0] NCCL {row['level']} {row['line']}\n"
    found = list(nccl_net.parse(lines(text, Origin())))
    _agrees(found, row)
    for fact in found:
        assert fact.node == "gpu-01"
    if found:
        assert any(needle in text.encode() for needle in nccl_net.NEEDLES)


ENDS = (
    "My EFA addr: fi_addr_efa://[fe80::c55:2eff:fe44:db5]:0:142160333 My host id: "
    "i-07792e0f955a9673b Peer EFA addr: fi_addr_efa://[fe80::454:14ff:fedd:d5b3]:0:825957744 Peer "
    "host id: i-0ce6d3d57139f053c"
)


@pytest.mark.parametrize("row", TRUTH["ofi"], ids=lambda row: row["error"][:40])
@pytest.mark.parametrize(
    "lead", ["ofi_process_cq:196", "int cm_req(nccl_net_ofi_context_t*, fi_cq_err_entry*):46"]
)
def test_a_failed_request_of_the_ofi_plugin_is_read(lead: str, row: dict[str, Any]) -> None:
    error = row["error"].replace("@", ENDS)
    text = (
        f"gpu-01:100:200 [0] {lead} NCCL WARN NET/OFI Request 0x7f456c completed with error. "
        f"RC: {row['rc']}. Error: {error}. Completed length: 0, Request: {{ dev: 0, size: 0 }}\n"
    )
    found = list(nccl_net.parse(lines(text, Origin())))
    assert [type(fact).__name__ for fact in found] == row["facts"]
    told = {key: value for key, value in row.items() if key not in ("rc", "error", "facts")}
    assert {key: getattr(found[-1], key) for key in told} == told
    assert {fact.node for fact in found} == {"gpu-01"}
    if len(found) == 2:
        assert getattr(found[0], "address", "") == "i-07792e0f955a9673b"
    assert any(needle in text.encode() for needle in nccl_net.NEEDLES)


@pytest.mark.parametrize("row", TRUTH["words"], ids=lambda row: f"{row['of']}-{row['text']}")
def test_every_spelling_of_a_port_is_one_word(row: dict[str, Any]) -> None:
    found = getattr(ib_words, row["of"])(row["text"])
    assert (list(found) if isinstance(found, tuple) else found) == row["is"]


@pytest.mark.parametrize("row", TRUTH["verbs"], ids=lambda row: f"{row['width']}-{row['speed']}")
def test_width_and_speed_of_the_verbs_make_the_rate(row: dict[str, Any]) -> None:
    text = (
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n"
        f"\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_width:\t\t{row['width']}\n"
        f"\t\t\tactive_speed:\t\t{row['speed']}\n"
    )
    _, port = ibv_devinfo.parse(text, Origin())
    assert (port.width, port.rate_gbps) == (row["lanes"], row["gbps"])


@pytest.mark.parametrize("row", TRUTH["none"], ids=lambda row: f"{row['probe']}-{row['exit']}")
def test_no_device_is_told_from_a_tool_that_did_not_tell(row: dict[str, Any]) -> None:
    probe = importlib.import_module(f"sluggish.probes.{row['probe']}")
    origin = Origin(node="a", exit_code=row["exit"], stderr=row.get("stderr", ""))
    if row["is"] == "unseen":
        with pytest.raises(ValueError, match="expected"):
            list(probe.parse(row.get("stdout", ""), origin))
        return
    [devices] = probe.parse(row.get("stdout", ""), origin)
    assert devices.names == ()


@pytest.mark.parametrize("row", TRUTH["forms"], ids=lambda row: row["text"][:24])
def test_every_form_of_ibstat_is_read_or_refused(row: dict[str, Any]) -> None:
    origin = Origin(node="a", exit_code=row["exit"], stderr=row.get("stderr", ""))
    if "why" in row:
        with pytest.raises(ValueError, match=row["why"]):
            list(ibstat.parse(row["text"], origin))
        return
    devices, *ports = ibstat.parse(row["text"], origin)
    assert list(devices.names) == row["is"]
    assert len(ports) == 1


@pytest.mark.parametrize("row", TRUTH["mad"], ids=lambda row: f"{row['is']}-{row['text'][:40]}")
def test_no_right_to_ask_is_told_from_no_answer(row: dict[str, Any]) -> None:
    assert ibdiags.sniff(row["text"].encode()) or "ABI version" in row["text"]
    if row["is"] == "right":
        with pytest.raises(ValueError, match="needs root"):
            list(ibdiags.parse(row["text"], Origin()))
        return
    [told] = ibdiags.parse(row["text"], Origin())
    assert isinstance(told, SubnetManager)
    assert (told.state if told.answers else "silent") == row["is"]


@pytest.mark.parametrize("row", TRUTH["flaps"], ids=str)
def test_a_flap_counts_by_the_budget_of_the_job(row: dict[str, Any]) -> None:
    version = Version(node=None, rank=None, component="nccl", version=row["nccl"])
    given = [*healthy(nodes(4)), *flap("gpu-02", -1, row["seconds"]), version, onset()]
    if "timeout" in row:
        env = (("NCCL_IB_TIMEOUT", str(row["timeout"])),)
        given.append(RankProcess(node="gpu-01", pid=1, env=env))
    [found] = run("IB-FLAP", *given)
    assert found.strength is Strength[row["is"].upper()]


@pytest.mark.parametrize("row", TRUTH["majority"], ids=lambda row: str(row["values"]))
def test_the_odd_node_is_judged_by_the_others(row: dict[str, Any]) -> None:
    mode, odd = odd_nodes(dict(enumerate(row["values"])))
    assert (mode, list(odd)) == (row["mode"], row["odd"])


def _twice(node: str, hca: str, first: dict[str, int], last: dict[str, int]) -> list[PortCounters]:
    return [
        PortCounters(node=node, hca=hca, port=1, sample=name, at=at(minutes), counters=counters)
        for name, minutes, counters in (("a", 18, first), ("b", 18.25, last))
    ]


def _counted(given: list[PortCounters], names: tuple[str, ...]) -> tuple[Finding, ...]:
    return run("IB-COUNTERS", *healthy(names, ("mlx5_0", "mlx5_1")), *given, names=names)


@pytest.mark.parametrize("row", TRUTH["steps"], ids=lambda row: f"{row['counter']}-{row['step']}")
def test_a_step_of_a_counter_is_what_it_is_known_for(row: dict[str, Any]) -> None:
    name = row["counter"]
    moved = {"gpu-02": row["step"]}
    given = [
        c for n in nodes(3) for c in _twice(n, "mlx5_0", {name: 3}, {name: 3 + moved.get(n, 0)})
    ]
    found = _counted(given, nodes(3))
    told = [f.strength.name.lower() for f in found if f.role is Role.ROOT]
    context = [f.says for f in found if f.role is Role.CONTEXT]
    told += ["loss" for says in context if says.startswith("packets are being lost")]
    told += ["damage" for says in context if says.startswith("frames come damaged over")]
    told += ["congestion" for says in context if says.startswith("the network is congested")]
    assert told == ([row["is"]] if row["is"] else [])
    assert {f.node for f in found if f.role is Role.ROOT} <= {"gpu-02"}


@pytest.mark.parametrize("row", TRUTH["full"], ids=lambda row: f"{row['counter']}-{row['at']}")
def test_a_counter_at_its_end_is_blind(row: dict[str, Any]) -> None:
    counters = {row["counter"]: row["at"]}
    found = _counted(_twice("gpu-01", "mlx5_0", counters, counters), nodes(1))
    assert any("saturated" in f.says for f in found) is row["blind"]
    assert not any(f.role is Role.ROOT for f in found)


@pytest.mark.parametrize("row", TRUTH["budget"], ids=str)
def test_a_queue_pair_gives_up_after_its_budget(row: dict[str, Any]) -> None:
    found = give_up_s(row.get("nccl"), row.get("timeout"))
    assert found == pytest.approx(row["seconds"], rel=0.02)


@pytest.mark.parametrize("row", TRUTH["statuses"], ids=lambda row: str(row["status"]))
def test_a_status_that_is_no_vote_is_explained_and_accuses_nobody(row: dict[str, Any]) -> None:
    found = run("IB-NCCL", lost("gpu-01", "10.7.1.2", status=row["status"]))
    assert [row["says"] in f.says for f in found] == [True]
    assert not any(f.role is Role.ROOT for f in found)


@pytest.mark.parametrize("row", TRUTH["traffic"], ids=str)
def test_traffic_between_two_looks_tells_where_it_stands(row: dict[str, Any]) -> None:
    bytes_of = {"mlx5_0": row["busy"], "mlx5_1": row["other"]}
    given = [
        c for n in nodes(2) for hca, moved in bytes_of.items()
        for c in _twice(n, hca, {"port_xmit_data": 7}, {"port_xmit_data": 7 + moved // 4})
    ]  # fmt: skip
    found = _counted(given, nodes(2))
    assert any(f.says.startswith(row["says"]) for f in found)
    assert not any(f.role is Role.ROOT for f in found)


@pytest.mark.parametrize("row", TRUTH["states"], ids=lambda row: f"{row['state']}-{row['phys']}")
def test_the_state_of_one_port_is_read(row: dict[str, Any]) -> None:
    rest = without(healthy(nodes(4)), ("gpu-02", "mlx5_3"))
    odd = port("gpu-02", "mlx5_3", state=row["state"], phys_state=row["phys"])
    found = run("IB-PORT", *rest, odd, onset(), *book(nodes(4)))
    clear = [f for f in found if f.role is Role.ALL_CLEAR]
    assert bool(clear) is (row["is"] is None)
    told = [(f.node, f.strength, f.action) for f in roots(found)]
    wanted = [("gpu-02", Strength[row["is"].upper()], row["action"])] if row["is"] else []
    assert told == wanted
    assert all(row["says"] in f.says for f in roots(found))


def test_links_that_recover_on_two_nodes_are_shared() -> None:
    rest = without(healthy(nodes(4)), ("gpu-02", "mlx5_3"), ("gpu-03", "mlx5_3"))
    odd = [port(n, "mlx5_3", state="active_defer") for n in ("gpu-02", "gpu-03")]
    found = roots(run("IB-PORT", *rest, *odd, onset(), *book(nodes(4))))
    assert [(f.node, f.shared, f.subtype) for f in found] == [(None, True, "shared_fabric")] * 2


def test_a_sweep_over_many_nodes_is_weak_and_accuses_nobody() -> None:
    ports = [port(n, "mlx5_0", state="armed") for n in nodes(4)]
    (found,) = roots(run("IB-SM", *ports, onset(), *book(nodes(4))))
    assert (found.strength, found.shared, found.node) == (Strength.WEAK, True, None)


@pytest.mark.parametrize("row", TRUTH["rates"], ids=lambda row: f"{row['odd']} of {row['peers']}")
def test_a_rate_is_slow_only_beside_faster_peers(row: dict[str, Any]) -> None:
    def made(node: str, words: str, state: str) -> Any:
        gbps, width = ib_words.rate(words)
        return port(node, "mlx5_0", rate_gbps=gbps, width=width, state=state)

    ports = [made(n, row["peers"], "active") for n in nodes(4) if n != "gpu-02"]
    ports.append(made("gpu-02", row["odd"], row.get("state", "active")))
    for name in ("IB-RATE", "SLOW-LINK"):
        found = run(name, *ports, *book(nodes(4)))
        assert [f.node for f in roots(found)] == (["gpu-02"] if row["slow"] else [])


@pytest.mark.parametrize("row", TRUTH["quiet"], ids=str)
def test_silence_clears_the_network_after_four_budgets(row: dict[str, Any]) -> None:
    since = at(18 - row["silent"] / 60)
    version = Version(node=None, rank=None, component="nccl", version=row["nccl"])
    stall = Onset(earliest=since, latest=since, source="log")
    found = run("IB-QUIET", *healthy(nodes(4)), log(row["debug"]), version, stall)
    assert any(f.role is Role.ALL_CLEAR for f in found) is row["clear"]


@pytest.mark.parametrize("row", TRUTH["foreign"], ids=lambda row: row["text"][:30])
def test_text_of_other_tools_is_no_port(row: dict[str, Any]) -> None:
    for name in ("ibstat", "ibstatus", "ibv_devinfo", "ib_ports", "ib_counters", "ibdiagnet"):
        assert not importlib.import_module(f"sluggish.probes.{name}").sniff(row["text"].encode())


@pytest.mark.parametrize("row", TRUTH["connect"], ids=lambda row: row["error"])
def test_why_a_queue_pair_was_not_connected_is_told(row: dict[str, Any]) -> None:
    text = f"gpu-01:1:2 [0] NCCL WARN Call to ibv_modify_qp failed with {row['error']}\n"
    given = nccl_net.parse(lines(text, Origin()))
    (found,) = ask(cfg_gid, facts(*given, log("WARN"), names=nodes(2)))
    assert row["says"] in found.says
    assert (found.role, found.node) == (Role.ROOT, None)
