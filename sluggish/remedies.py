"""Ordered advice: what to do, by whom, with which effect. Printed, never run.

The texts are data (remedies.yaml); the guards are here. Commands are built from checked node names,
job ids, integers and our own words only, never from the text of a log.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sluggish.catalog import data
from sluggish.causes import Cause
from sluggish.facts.derived import Profile
from sluggish.findings import Finding, Role, Strength
from sluggish.hostlist import fold
from sluggish.job import Job, Neighbour, NodeState
from sluggish.text import is_node_name, safe
from sluggish.verdict.model import Culprit, Remedy, Verdict

JOB_ID = re.compile(r"\d{1,12}(?:_\d{1,9}|\+\d{1,9})?\Z", re.ASCII)
HCA = re.compile(r"[A-Za-z][A-Za-z0-9_]{1,31}\Z")
ENDS_JOB = re.compile(r"scancel |scontrol requeue ")
_XID = re.compile(r"Xid (\d{1,4})\b")
REASON = "sluggish: {rule} {what} job={job}"
"""The one form of drain reasons: the prefix says whose it is, the code stands first."""
MOST_REASON = 99
MOST_OTHERS = 4
_WORD = re.compile(r"\{(rule|what|job)\}")
_REASON_TEXT = re.compile(r"[A-Za-z0-9 .,:=_+/()\[\]#@-]*\Z")
MOST_NODES = 3
"""Repair commands are printed for this many nodes; the others need the same."""
NEEDS_A_FIX = (Cause.RANK_DESYNC, Cause.APP_CRASH, Cause.CONFIG, Cause.MEMORY)
"""A requeue without the fix ends the same way."""
KEEPS_RUNNING = (Cause.PROGRESSING, Cause.STRAGGLER, Cause.NOT_RUNNING, Cause.UNKNOWN)
WAITS = ("checkpoint", "image_import", "import_storm", "growth", "port_error", "link_degraded")
"""Subtypes that may pass: ending the job is the user's choice, not the first step."""
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL",
         "DEADLINE", "PREEMPTED", "COMPLETING", "PENDING", "REQUEUED")  # fmt: skip
REBOOTS = ("off_bus", "missing", "driver_stuck")
"""A reset does not reach a GPU that left the bus, nor one whose driver hangs, whatever 154 says."""
OURS_TO_REPAIR = ("reboot_node", "reset_gpu", "reset_node_gpus", "reset_nvlink_domain",
                  "drain_and_field_diag", "rma", "port_down", "hca_fatal",
                  "link_degraded")  # fmt: skip
"""Entries that touch hardware: not the user's to mend where it is a provider's."""
PLAIN = Profile()
"""Machines of one's own, each with its own NVLink domain."""
DOWN = ("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING")


def remedies(
    verdict: Verdict,
    findings: Sequence[Finding],
    job: Job | None,
    node_states: Sequence[NodeState],
    drain_nodes: Sequence[str],
    profile: Profile = PLAIN,
    neighbours: Sequence[Neighbour] = (),
    reason: str = REASON,
    inside: Sequence[str] = (),
    unread: bool = False,
) -> tuple[Remedy, ...]:
    """Keep new jobs off, end the job, repair, verify, housekeeping: in this order.

    `drain_nodes` are those whose drain gate is open; no other node is drained, reset or rebooted.
    `neighbours`: every job on these nodes; the others are named beside what would hit them.
    `reason`: the template of drain reasons, see `reason_problem`.
    `inside`: nodes whose ranks have mounts of their own; `unread`: some of their dumps are there.
    """
    others = _others(neighbours, job)
    drains = () if verdict.shared else tuple(n for n in drain_nodes if is_node_name(n))
    drained = _drained(node_states)
    job_id = job.id if job and JOB_ID.match(job.id) else None
    end = tuple(_end(verdict, findings, job, job_id, drains))
    repair = tuple(
        _repair(verdict, findings, job, job_id, drains, drained, profile, others, reason)
    )
    # a start on storage that does not answer hangs again: look and mend before the job goes
    ordered = (*repair, *end) if verdict.subtype == "storage" else (*end, *repair)
    steps = [
        *_keep_off(
            verdict,
            findings,
            job_id,
            drains,
            drained,
            {s.node for s in node_states},
            others,
            reason,
        ),
        *_first_look(verdict, job),
        *ordered,
        *_housekeeping(findings, profile),
    ]
    return tuple(_numbered(_ends_dumps(step, inside, unread) for step in steps))


def _ends_dumps(step: dict[str, Any], inside: Sequence[str], unread: bool) -> dict[str, Any]:
    """The warning before each line that ends the job: what lies in a container ends with it."""
    nodes = [node for node in inside if is_node_name(node)]
    if not nodes or not any(ENDS_JOB.match(command) for command in step.get("commands", ())):
        return step
    saved = "not all of their dumps could be read: copy them before" * unread
    warning = (
        f"ranks on {fold(nodes)} have mounts of their own (a container or a private /tmp): what "
        f"lies there ends with them; {saved or 'the dumps that were found are in the evidence'}"
    )
    told = step.get("precondition")
    return {**step, "precondition": f"{warning}; {told}" if told else warning}


def _numbered(steps: Iterable[dict[str, Any]]) -> Iterable[Remedy]:
    for order, step in enumerate(steps, 1):
        yield Remedy(
            order=order,
            title=step["title"],
            commands=tuple(step.get("commands", ())),
            effect=step.get("effect", ""),
            disruptive=bool(step.get("disruptive")),
            precondition=step.get("precondition"),
            needs=step.get("needs", "job owner"),
        )


@cache
def _texts() -> dict[str, dict[str, list[Any]]]:
    return data.read("remedies.yaml", "sluggish")


def _drained(states: Sequence[NodeState]) -> dict[str, str]:
    """Nodes that somebody has already taken out, with the reason that must not be overwritten."""
    return {
        state.node: state.reason or ""
        for state in states
        if state.state.upper() in DOWN or any(flag.upper() in DOWN for flag in state.flags)
    }


def _keep_off(
    verdict: Verdict,
    findings: Sequence[Finding],
    job_id: str | None,
    drains: Sequence[str],
    drained: dict[str, str],
    known: set[str],
    others: dict[str, list[str]],
    template: str,
) -> Iterable[dict[str, Any]]:
    for node in drains:
        if node in drained:
            why = f" (reason: {safe(drained[node], 80)})" if drained[node] else ""
            yield {
                "title": f"{node} is already out of service{why}: leave that as it is",
                "effect": "a second drain would overwrite the reason",
                "needs": "nobody special",
            }
            continue
        reason = drain_reason(verdict, findings, node, job_id, template)
        stays = f" (does not stop job {job_id})" if job_id else ""
        yield {
            "title": f"keep new jobs off {node}{stays}",
            "effect": f"running jobs go on{_also(node, others)}",
            "commands": [f'scontrol update NodeName={node} State=DRAIN Reason="{reason}"'],
            "precondition": None
            if node in known
            else f"scontrol show node {node} has no Reason yet; a second drain overwrites it",
            "needs": "slurm administrator",
        }


def _others(neighbours: Sequence[Neighbour], job: Job | None) -> dict[str, list[str]]:
    """Node -> `77 (bob)`: the jobs there that are not the looked-at one or a part of it."""
    base = re.split(r"[_+]", job.id)[0] if job else None
    found: dict[str, list[str]] = {}
    for one in neighbours:
        if job and (one.raw_id == job.raw_id or one.id.startswith(f"{base}+") or one.id == job.id):
            continue
        for node in one.nodes:
            found.setdefault(node, []).append(f"{safe(one.id, 30)} ({safe(one.user or '?', 32)})")
    return found


def _also(node: str, others: dict[str, list[str]]) -> str:
    """`; other jobs on gpu-08: 77 (bob)`; empty where none is known."""
    there = others.get(node, [])
    more = f" and {len(there) - MOST_OTHERS} more" if len(there) > MOST_OTHERS else ""
    return f"; other jobs on {node}: {', '.join(there[:MOST_OTHERS])}{more}" if there else ""


def reason_problem(template: str) -> str | None:
    """Why this cannot be the template of drain reasons; None where it can.

    It stands between double quotes in a command, is cut by `sinfo -R` at 20 columns, and other
    tools split reasons at `;`.
    """
    bare = _WORD.sub("", template)
    if not template.strip() or not _REASON_TEXT.match(bare):
        return "letters, digits, blanks and .,:=_+-/()[]#@ only, with {rule} {what} {job}"
    if len(bare) > MOST_REASON // 2:
        return f"longer than {MOST_REASON // 2} characters without its words"
    return None if "{rule}" in template else "{rule} is missing"


def drain_reason(
    verdict: Verdict,
    findings: Sequence[Finding],
    node: str,
    job_id: str | None,
    template: str = REASON,
) -> str:
    """`sluggish: GPU-XID Xid79 gpu5 job=48213`: our words, integers and checked names only.

    ASCII, one line, under 100 characters, no quote and no `;`. A part of the template whose word
    is not known is left out.
    """
    there = [f for f in findings if f.role is Role.ROOT and any(s.node == node for s in f.spots)]
    order = list(Strength)
    head = min(
        there, key=lambda f: (order.index(f.strength), not _XID.search(f.says)), default=None
    )
    what: list[str] = []
    code = _XID.search(head.says) if head else None
    if code:
        what.append(f"Xid{int(code[1])}")
    culprit = next((c for c in verdict.culprits if c.node == node), Culprit())
    if culprit.gpu_index is not None:
        what.append(f"gpu{culprit.gpu_index}")
    if culprit.hca and HCA.match(culprit.hca):
        what.append(culprit.hca)
    words = {
        "rule": head.rule if head else str(verdict.cause),
        "what": " ".join(what),
        "job": job_id or "",
    }
    used = template if reason_problem(template) is None else REASON
    parts = [part for part in used.split(" ") if all(words[name] for name in _WORD.findall(part))]
    filled = _WORD.sub(lambda m: words[m[1]], " ".join(parts))
    return filled[:MOST_REASON].rstrip()


def _first_look(verdict: Verdict, job: Job | None) -> Iterable[dict[str, Any]]:
    """Stacks go with the processes: where they would help, they come before the end of the job."""
    if verdict.cause is Cause.RANK_DESYNC and not _has_ended(job):
        look = _texts()["unknown"]["default"][0]
        yield _filled(look, **_whole_job(job))


def _has_ended(job: Job | None) -> bool:
    return job is not None and (job.state or "").upper() in ENDED


def _whole_job(job: Job | None) -> dict[str, str | int | None]:
    """What srun needs to reach every node of a job from outside it: without -N it takes one.

    It wants the plain number of an array's task, and --het-group for a heterogeneous job.
    """
    if job is None or any("+" in name for name in (job.id, *(step.id for step in job.steps))):
        return {}
    number = job.raw_id if job.raw_id and job.raw_id.isascii() and job.raw_id.isdigit() else job.id
    plain = number.isascii() and number.isdigit()
    return {"number": number if plain else None, "size": len(job.nodes) or job.num_nodes or None}


def _end(
    verdict: Verdict,
    findings: Sequence[Finding],
    job: Job | None,
    job_id: str | None,
    drains: Sequence[str],
) -> Iterable[dict[str, Any]]:
    if verdict.cause in KEEPS_RUNNING or verdict.subtype in WAITS or _has_ended(job):
        return
    nodes = _nodes_of(verdict.culprits)
    again = bool(job and job.requeue) and verdict.cause not in NEEDS_A_FIX
    saved = _last_checkpoint(findings)
    again_there = "; nothing keeps it off the same node" * bool(
        _at_hardware(verdict) and not drains
    )
    if again:
        yield {
            "title": "end the job and let it start again",
            "effect": "runs the script from line 1"
            f"{saved}; Slurm forgets this run's node list{again_there}",
            "commands": [f"scontrol requeue {job_id}"] if job_id else [],
            "disruptive": True,
        }
        return
    why = "; started again without the fix it ends the same way" * (verdict.cause in NEEDS_A_FIX)
    out = _at_hardware(verdict)
    exclude = f", then start it again with --exclude={fold(nodes)}" if out and nodes else ""
    yield {
        "title": f"end the job{exclude}",
        "effect": f"loses what was not saved{saved}{why}",
        "commands": [f"scancel {job_id}"] if job_id else [],
        "disruptive": True,
    }


def _at_hardware(verdict: Verdict) -> bool:
    hardware = (Cause.GPU_FAULT, Cause.IB_FAULT, Cause.NODE_DOWN)
    return verdict.cause in hardware and not verdict.shared


def _last_checkpoint(findings: Sequence[Finding]) -> str:
    told = next((f.says for f in findings if f.rule == "PROG-CKPT" and f.says), "")
    return f" ({safe(told, 80)})" if told else ""


def _nodes_of(culprits: Sequence[Culprit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.node for c in culprits if c.node and is_node_name(c.node)))


def _repair(
    verdict: Verdict,
    findings: Sequence[Finding],
    job: Job | None,
    job_id: str | None,
    drains: Sequence[str],
    drained: dict[str, str],
    profile: Profile,
    others: dict[str, list[str]],
    template: str,
) -> Iterable[dict[str, Any]]:
    texts = _texts().get(verdict.cause, {})
    steps = list(_steps(texts, _on(profile, _key(verdict, findings), texts)))
    steps += list(_steps(texts, _on(profile, "verify", texts))) if drains else []
    for told in steps:
        step = _of_provider(told, profile)
        if (step.get("disruptive") or step.get("drained_only")) and not drains:
            continue
        if step.get("running_only") and _has_ended(job):
            continue
        gated = step.get("disruptive") or step.get("drained_only")
        nodes = drains if gated else (drains or _nodes_of(verdict.culprits))
        yield _for_nodes(
            *_of_others(step, nodes, drained), verdict, findings, job, job_id, others, template
        )


def _of_others(
    step: dict[str, Any], nodes: Sequence[str], drained: dict[str, str]
) -> tuple[dict[str, Any], Sequence[str]]:
    """A node that somebody has taken out is rebooted and returned by whoever did it.

    `nextstate=DOWN` would write over the reason, and the line that returns the node is not ours.
    """
    commands = " ".join(step.get("commands", ()))
    theirs = [n for n in nodes if n in drained]
    if not theirs or not ("State=RESUME" in commands or "nextstate=DOWN" in commands):
        return step, nodes
    who = f"{step.get('effect', '')}; {fold(theirs)}: by whoever took it out of service"
    return {**step, "effect": who}, [n for n in nodes if n not in drained]


def _on(profile: Profile, key: str, texts: dict[str, list[Any]]) -> str:
    """The entry that fits the machines: a provider's hardware is given back, not repaired."""
    if profile.cloud and f"cloud_{key}" in texts:
        return f"cloud_{key}"
    if profile.cloud and key in OURS_TO_REPAIR and "cloud_repair" in texts:
        return "cloud_repair"
    if profile.rack_domain and key in ("reset_gpu", "reset_node_gpus"):
        return "reset_nvlink_domain"
    return key


def _of_provider(step: dict[str, Any], profile: Profile) -> dict[str, Any]:
    return {**step, "title": step["title"].replace("PROVIDER", profile.cloud or "the provider")}


def _key(verdict: Verdict, findings: Sequence[Finding]) -> str:
    """Which entry of the texts: shared before subtype, and for GPUs the catalogue's action."""
    if verdict.shared and verdict.cause is Cause.IB_FAULT:
        return "subnet_manager" if verdict.subtype == "subnet_manager" else "shared_fabric"
    if verdict.cause is not Cause.GPU_FAULT:
        return verdict.subtype or "default"
    if verdict.shared:
        imex = any(f.role is Role.ROOT and f.action == "recover_imex" for f in findings)
        return "recover_imex" if imex else "check_fabric"
    if verdict.subtype in REBOOTS:
        return "reboot_node"
    nodes = _nodes_of(verdict.culprits)
    actions = (
        f.action
        for f in findings
        if f.role is Role.ROOT and f.action and any(s.node in nodes for s in f.spots)
    )
    action = next(actions, "default")
    return "reset_node_gpus" if (verdict.subtype, action) == ("nvlink", "reset_gpu") else action


def _steps(texts: dict[str, list[Any]], key: str) -> Iterable[dict[str, Any]]:
    for step in texts.get(key, texts.get("default", []) if "verify" not in key else []):
        if isinstance(step, str):
            yield from _steps(texts, step)
        else:
            yield step


def _for_nodes(
    step: dict[str, Any],
    nodes: Sequence[str],
    verdict: Verdict,
    findings: Sequence[Finding],
    job: Job | None,
    job_id: str | None,
    others: dict[str, list[str]],
    template: str,
) -> dict[str, Any]:
    """The step with its commands for each node; a node beyond the first three is only counted."""
    commands: list[str] = []
    for node in nodes[:MOST_NODES] or (None,):
        mine = [c for c in verdict.culprits if c.node == node] if node else []
        gpu = next((c.gpu_index for c in mine if c.gpu_index is not None), None)
        hca = next((c.hca for c in mine if c.hca and HCA.match(c.hca)), None)
        reason = drain_reason(verdict, findings, node, job_id, template) if node else None
        whole = _whole_job(job)
        filled = _filled(step, node=node, gpu=gpu, hca=hca, job=job_id, reason=reason, **whole)
        commands += [c for c in filled["commands"] if c not in commands]
    more = len(nodes) - MOST_NODES
    rest = f"; the same for {more} more nodes" if more > 0 else ""
    hit = "".join(_also(node, others) for node in nodes) if step.get("disruptive") else ""
    return {**step, "commands": commands, "effect": step.get("effect", "") + rest + hit}


def _filled(step: dict[str, Any], **words: str | int | None) -> dict[str, Any]:
    """The step with its templates filled; a command that lacks a word is left out."""
    have = {key: value for key, value in words.items() if value is not None}
    commands: list[str] = []
    for template in step.get("commands", ()):
        wanted = set(re.findall(r"\{(\w+)\}", template))
        if wanted <= have.keys():
            commands.append(template.format(**have))
    return {**step, "commands": commands}


def _housekeeping(findings: Sequence[Finding], profile: Profile) -> Iterable[dict[str, Any]]:
    """What waits for an idle moment: never a drain, never urgent."""
    places: dict[str, None] = {}
    for finding in findings:
        if finding.role is Role.HOUSEKEEPING and finding.action == "reset_gpu" and finding.node:
            places[f"{safe(finding.node, 60)} {safe(finding.subject, 40)}"] = None
    if places:
        what = "reset"
        if profile.cloud:
            what = "reboot or exchange the instance"
        elif profile.rack_domain:
            what = "reset with its whole NVLink domain"
        some = ", ".join(list(places)[:4]) + (f" and {len(places) - 4} more" * (len(places) > 4))
        yield {
            "title": f"housekeeping: {what} at the next idle moment: {some}",
            "effect": "applies a pending row remap; not urgent and not the cause",
            "needs": "root",
        }
