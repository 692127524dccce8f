"""Advice is ordered and guarded: a drain line only through the gate, commands of checked words."""

import re
import shlex
from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluggish.causes import SUBTYPES, Cause
from sluggish.findings import Finding, Role, Spot, Strength
from sluggish.job import Job, Neighbour, NodeState, Step
from sluggish.probes.mounts import NETWORK
from sluggish.remedies import REASON, drain_reason, reason_problem, remedies
from sluggish.report.json import Needs
from sluggish.verdict.model import Culprit, Remedy, Verdict

TEXTS = yaml.safe_load((files("sluggish") / "remedies.yaml").read_text("utf-8"))
JOB = Job(id="48213", state="RUNNING", requeue=True)
XID79 = Finding(
    node="gpu-08",
    subject="gpu 5",
    role=Role.ROOT,
    strength=Strength.DECISIVE,
    rule="GPU-LOST",
    says="Xid 79: GPU has fallen off the bus",
    spots=(Spot(node="gpu-08", gpu_index=5),),
    action="reboot_node",
)
GPU = Verdict(
    cause=Cause.GPU_FAULT, subtype="off_bus", culprits=(Culprit(node="gpu-08", gpu_index=5),)
)
STATE = NodeState(node="gpu-08", state="MIXED")


def commands(steps: tuple[Remedy, ...]) -> list[str]:
    return [command for step in steps for command in step.commands]


FOLKLORE = {
    "NCCL_SOCKET_IFNAME": {"interface"},
    "NCCL_P2P_DISABLE": {"p2p_acs"},
    "NCCL_P2P_LEVEL": set[str](),
    "NCCL_IB_DISABLE": set[str](),
    "raise the timeout": {"timeout_short"},
    "NCCL_NVLS_ENABLE": {"fabric_manager"},
}
"""Settings that people try first: what each hides is said where it is the cure, and only there."""


@pytest.mark.parametrize("words", FOLKLORE)
def test_what_people_try_first_is_advised_only_where_it_is_the_cure(words: str) -> None:
    where = {
        subtype
        for subtypes in TEXTS.values()
        if isinstance(subtypes, dict)
        for subtype, steps in subtypes.items()
        if words in str(steps)
    }
    assert where <= FOLKLORE[words]


def test_a_lost_gpu_is_drained_requeued_rebooted_verified_in_this_order() -> None:
    steps = remedies(GPU, (XID79,), JOB, (STATE,), ("gpu-08",))
    assert commands(steps) == [
        "scontrol update NodeName=gpu-08 State=DRAIN "
        'Reason="sluggish: GPU-LOST Xid79 gpu5 job=48213"',
        "scontrol requeue 48213",
        "scontrol reboot ASAP nextstate=DOWN "
        'reason="sluggish: GPU-LOST Xid79 gpu5 job=48213" gpu-08',
        "ssh gpu-08 sudo dcgmi diag -r 3",
        "scontrol update NodeName=gpu-08 State=RESUME",
    ]
    assert [step.order for step in steps] == [1, 2, 3, 4, 5]
    assert "power the node off" in steps[3].title  # only where the reboot did not bring it back
    assert steps[0].needs == "slurm administrator"
    assert steps[0].precondition is None


def test_without_the_gate_no_node_is_drained_reset_or_rebooted() -> None:
    text = "\n".join(commands(remedies(GPU, (XID79,), JOB, (STATE,), ())))
    assert not re.search(r"DRAIN|reboot|gpu-reset|RESUME", text)


def test_a_node_that_is_drained_already_keeps_its_reason() -> None:
    drained = NodeState(node="gpu-08", state="MIXED", flags=("DRAIN",), reason="bad fan (root)")
    steps = remedies(GPU, (XID79,), JOB, (drained,), ("gpu-08",))
    assert not any(re.search(r"State=|scontrol reboot", command) for command in commands(steps))
    assert "already out of service (reason: bad fan (root))" in steps[0].title
    told = [step for step in steps if "gpu-08: by whoever took it out of service" in step.effect]
    assert [step.title.split(" ")[0] for step in told] == ["reboot", "all"]


def test_a_gpu_is_reset_only_between_what_makes_it_possible_and_what_brings_it_back() -> None:
    ecc = replace(GPU, subtype="ecc")
    found = replace(XID79, rule="GPU-ECC", says="Xid 48", action="reset_gpu")
    steps = remedies(ecc, (found,), JOB, (STATE,), ("gpu-08",))
    order = ["DRAIN", "scontrol requeue", "lsof", "systemctl stop slurmd", "--gpu-reset -i 5",
             "systemctl start", "grep -A 3 Fabric", "dcgmi diag", "State=RESUME"]  # fmt: skip
    told = commands(steps)
    assert [next(w for w in order if w in command) for command in told] == order
    stop = next(c for c in told if "systemctl stop" in c).partition(" stop ")[2].split()
    start = next(c for c in told if "systemctl start" in c).partition(" start ")[2].split()
    assert start == stop[::-1]
    assert "fabricmanager" not in " ".join(told)
    (reset,) = [step for step in steps if any("--gpu-reset" in c for c in step.commands)]
    assert "no client at all" in (reset.precondition or "")
    assert "reboot" in reset.title
    closed = commands(remedies(ecc, (found,), JOB, (STATE,), ()))
    assert not re.search("lsof|systemctl|gpu-reset", " ".join(closed))


def test_a_lost_link_resets_both_of_its_ends() -> None:
    link = replace(GPU, subtype="nvlink")
    found = replace(XID79, rule="GPU-XID", says="Xid 149", action="reset_gpu")
    told = commands(remedies(link, (found,), JOB, (STATE,), ("gpu-08",)))
    assert "ssh gpu-08 sudo nvidia-smi --gpu-reset" in told
    assert sum("systemctl" in command for command in told) == 2


def test_every_way_out_of_service_has_its_way_back() -> None:
    """A node that is left DOWN or drained by these lines is returned by one of them."""
    for cause, texts in TEXTS.items():
        takes = [k for k, steps in texts.items() if "nextstate=DOWN" in str(steps)
                 or "drained_only" in str(steps)]  # fmt: skip
        for key in takes:
            back = "cloud_verify" if key.startswith("cloud") else "verify"
            assert "State=RESUME" in str(texts.get(back)), (cause, key)


def test_a_node_whose_state_was_not_read_asks_for_a_look_first() -> None:
    steps = remedies(GPU, (XID79,), JOB, (), ("gpu-08",))
    assert "has no Reason yet" in (steps[0].precondition or "")


def test_a_shared_cause_has_no_drain_line_even_if_nodes_are_handed_in() -> None:
    port = Verdict(cause=Cause.IB_FAULT, subtype="port_down", shared=True)
    text = "\n".join(commands(remedies(port, (), JOB, (STATE,), ("gpu-08",))))
    assert "DRAIN" not in text
    assert "iblinkinfo" in text


def test_a_job_that_may_not_be_requeued_is_cancelled_and_started_without_the_node() -> None:
    steps = remedies(GPU, (XID79,), replace(JOB, requeue=False), (STATE,), ("gpu-08",))
    end = next(step for step in steps if "scancel 48213" in step.commands)
    assert "--exclude=gpu-08" in end.title


def test_a_job_that_has_ended_is_not_ended_again() -> None:
    steps = remedies(GPU, (XID79,), replace(JOB, state="FAILED"), (STATE,), ("gpu-08",))
    assert not any(re.search("scancel|requeue", command) for command in commands(steps))


def test_a_desync_is_cancelled_not_requeued_and_the_fix_is_told() -> None:
    desync = Verdict(cause=Cause.RANK_DESYNC, subtype="collective_mismatch")
    steps = remedies(desync, (), JOB, (STATE,), ("gpu-08",)[:0])
    text = " ".join(f"{step.title} {step.effect}" for step in steps)
    assert "scancel 48213" in commands(steps)
    assert "scontrol requeue 48213" not in commands(steps)
    assert "all-reduce MIN" in text
    assert "Join covers neither FSDP nor a manual barrier" in text
    assert "checkpoint inside the epoch" in text
    titles = [step.title for step in steps]
    assert titles[0].startswith("take the stacks")


def stacks(job: Job) -> list[str]:
    unknown = Verdict(cause=Cause.UNKNOWN, subtype="hang")
    return [c for c in commands(remedies(unknown, (), job, (), ())) if "py-spy" in c]


def test_the_stacks_are_taken_on_every_node_of_the_job() -> None:
    # srun from outside the job takes one node where it is not told how many (Slurm 22.05)
    job = replace(JOB, nodes=("gpu-07", "gpu-08", "gpu-09"))
    assert stacks(job)[0].startswith("srun --jobid=48213 --overlap -N3 -n3 ")
    # and no `48200_3` for a job
    assert stacks(replace(job, id="48200_3", raw_id="48213"))[0].startswith("srun --jobid=48213 ")
    assert not stacks(replace(job, id="48200_3"))
    assert not stacks(replace(job, steps=(Step(id="48213+1.0"),)))
    assert not stacks(JOB)


def test_the_stacks_of_a_job_that_has_ended_are_not_asked_for() -> None:
    job = replace(JOB, nodes=("gpu-07", "gpu-08"), state="FAILED")
    for cause, subtype in ((Cause.UNKNOWN, "hang"), (Cause.RANK_DESYNC, "missing_rank")):
        steps = remedies(Verdict(cause=cause, subtype=subtype), (), job, (), ())
        assert steps
        assert not any("stacks" in step.title for step in steps)


def test_the_look_at_mounts_takes_every_kind_that_the_probe_knows() -> None:
    stalled = Verdict(cause=Cause.DATA_STALL, subtype="storage", culprits=(Culprit(node="gpu-08"),))
    look = commands(remedies(stalled, (), JOB, (), ()))[0]
    remote = shlex.split(look)[2]
    kinds = re.compile(shlex.split(remote)[2])
    for kind in (*NETWORK, "fuse.juicefs", "fuse"):
        assert kinds.search(f"host:/x /mnt/x {kind} rw,relatime 0 0"), kind
    assert not kinds.search("/dev/nvme0n1p1 /local xfs rw 0 0")


def test_contained_ecc_asks_for_a_restart_and_nothing_disruptive_on_the_node() -> None:
    ecc = replace(GPU, subtype="ecc")
    found = replace(XID79, rule="GPU-ECC", says="Xid 94: contained ECC", action="restart_app")
    steps = remedies(ecc, (found,), JOB, (STATE,), ())
    assert commands(steps) == ["scontrol requeue 48213"]
    assert any("the next start may use the node" in step.title for step in steps)


def test_a_polling_port_does_not_restart_openibd() -> None:
    port = Verdict(
        cause=Cause.IB_FAULT,
        subtype="port_down",
        culprits=(Culprit(node="gpu-07", hca="mlx5_5"),),
    )
    found = replace(XID79, node="gpu-07", rule="IB-PORT", says="port Down, Polling",
                    spots=(Spot(node="gpu-07", hca="mlx5_5"),))  # fmt: skip
    steps = remedies(port, (found,), JOB, (), ("gpu-07",))
    assert any('Reason="sluggish: IB-PORT mlx5_5 job=48213"' in c for c in commands(steps))
    assert not any("openibd" in command for command in commands(steps))
    assert "ssh gpu-07 ibstat mlx5_5" in commands(steps)


def test_a_job_that_progresses_needs_nothing() -> None:
    assert remedies(Verdict(cause=Cause.PROGRESSING), (), JOB, (), ()) == ()


def test_unknown_keeps_the_job_and_asks_for_stacks() -> None:
    job = replace(JOB, nodes=("gpu-07", "gpu-08"))
    steps = remedies(Verdict(cause=Cause.UNKNOWN, subtype="hang"), (), job, (), ())
    assert not any("scancel" in command for command in commands(steps))
    assert any("py-spy dump" in command for command in commands(steps))


def test_a_pending_remap_waits_for_an_idle_moment() -> None:
    pending = replace(XID79, role=Role.HOUSEKEEPING, rule="GPU-REMAP", action="reset_gpu")
    steps = remedies(Verdict(cause=Cause.UNKNOWN), (pending,), JOB, (), ())
    assert steps[-1].title == "housekeeping: reset at the next idle moment: gpu-08 gpu 5"
    assert steps[-1].commands == ()


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["x; rm -rf /", "$(reboot)", "a`id`", "n1\nscancel 1", "-f", "gpu-08 && x"]),
)


@given(name=HOSTILE, says=HOSTILE, hca=HOSTILE, job=HOSTILE, cause=st.sampled_from(list(Cause)))
def test_no_text_of_evidence_reaches_a_command(
    name: str, says: str, hca: str, job: str, cause: Cause
) -> None:
    spot = Spot(node=name, hca=hca, gpu_pci=says)
    culprit = Culprit(node=name, hca=hca, gpu_pci=says, gpu_index=1, doing=says)
    found = replace(XID79, node=name, says=says, spots=(spot,), subject=says)
    for subtype in SUBTYPES[cause]:
        verdict = Verdict(cause=cause, subtype=subtype, culprits=(culprit,))
        steps = remedies(verdict, (found,), Job(id=job, requeue=True), (), (name,))
        for command in commands(steps):
            assert re.fullmatch(r"[ -~]+", command)
            calm = command.replace("-q | grep", "").replace("pgrep -f [p]ython|xargs", "")
            calm = calm.replace("| grep -E 'target:|state:'", "")
            calm = re.sub(r"grep -E .* /proc/mounts \| cut .* \| xargs", "", calm)
            assert not re.search(r"[;`&<>|$\n]", calm)


@pytest.mark.parametrize("cause", list(TEXTS))
def test_every_key_of_the_texts_is_a_subtype_or_an_action(cause: str) -> None:
    actions = {"none", "restart_app", "reset_gpu", "reboot_node", "drain_and_field_diag", "rma",
               "check_fabric", "reset_nvlink_domain", "recover_imex", "reset_node_gpus",
               "empty", "back"}  # fmt: skip
    of_a_provider = {f"cloud_{key}" for key in (*SUBTYPES[Cause(cause)], "verify", "repair")}
    allowed = {
        *of_a_provider,
        *SUBTYPES[Cause(cause)],
        "default",
        "verify",
        *(actions if cause == "gpu_fault" else ()),
    }
    assert set(TEXTS[cause]) <= allowed


def test_every_step_of_the_texts_is_complete() -> None:
    keys = {"title", "effect", "commands", "precondition", "needs", "disruptive", "drained_only",
            "running_only"}  # fmt: skip
    for texts in TEXTS.values():
        for step in (step for steps in texts.values() for step in steps):
            if isinstance(step, str):
                assert step in texts
                continue
            assert set(step) <= keys
            assert step["title"]
            Needs(step["needs"])
            for command in step.get("commands", ()):
                assert shlex.split(command)


@pytest.mark.parametrize("cause", [c for c in Cause if c is not Cause.PROGRESSING])
def test_every_subtype_has_some_advice(cause: Cause) -> None:
    for subtype in SUBTYPES[cause]:
        verdict = Verdict(cause=cause, subtype=subtype)
        assert remedies(verdict, (), JOB, (), ()), subtype


def test_other_jobs_stand_beside_drain_and_reboot_and_the_jobs_own_parts_do_not() -> None:
    told = [
        Neighbour(id="48213", raw_id="48213", user="alice", nodes=("gpu-08",)),
        Neighbour(id="77_1", raw_id="78", user="bob", nodes=("gpu-08", "gpu-09")),
        Neighbour(id="80", raw_id="80", user="eve", nodes=("gpu-09",)),
    ]
    job = replace(JOB, raw_id="48213")
    steps = remedies(GPU, (XID79,), job, (STATE,), ("gpu-08",), neighbours=told)
    hit = [step for step in steps if "other jobs on gpu-08: 77_1 (bob)" in step.effect]
    assert [
        step.commands[0].split(" Reason")[0].split(" ")[1] for step in hit if step.commands
    ] == [
        "update", "reboot",
    ]  # fmt: skip
    assert not any("eve" in step.effect or "alice" in step.effect for step in steps)
    for step in steps:
        if any(re.search("scontrol (update|reboot)", command) for command in step.commands):
            assert step.needs != "job owner"


def test_a_site_may_have_its_own_form_of_reasons() -> None:
    def reason(template: str, job: str | None = "7") -> str:
        return drain_reason(GPU, (XID79,), "gpu-08", job, template)

    assert reason(REASON) == "sluggish: GPU-LOST Xid79 gpu5 job=7"
    assert reason(REASON, None) == "sluggish: GPU-LOST Xid79 gpu5"
    assert reason("[HC] {rule} ({what})") == "[HC] GPU-LOST (Xid79 gpu5)"
    assert drain_reason(GPU, (), "gpu-09", None) == "sluggish: gpu_fault"


@pytest.mark.parametrize(
    "template",
    ["", "{what}", 'x" State=DOWN {rule}', "a;b {rule}", "$(reboot) {rule}", "{rule}`id`",
     "{rule}\n", "{rule} \\", "{rule} {user}", "{rule} é", "{rule}" + "x" * 60],
)  # fmt: skip
def test_a_template_that_could_leave_its_quotes_is_refused_and_never_used(template: str) -> None:
    assert reason_problem(template)
    assert drain_reason(GPU, (XID79,), "gpu-08", "7", template).startswith("sluggish: GPU-LOST")


@given(st.text(max_size=60), st.text(max_size=200))
def test_every_reason_is_short_ascii_and_quotable(template: str, says: str) -> None:
    found = replace(XID79, says=says)
    text = drain_reason(GPU, (found,), "gpu-08", "48213", template)
    assert re.fullmatch(r"[A-Za-z0-9 .,:=_+/()\[\]#@-]{1,99}", text)


def test_before_the_job_is_ended_what_ends_with_its_containers_is_said() -> None:
    odd = Verdict(cause=Cause.RANK_DESYNC, subtype="collective_mismatch")
    inside = ("gpu-07", "gpu-08", "bad;name")
    for steps in (
        remedies(odd, (), JOB, (), (), inside=inside),
        remedies(GPU, (XID79,), JOB, (STATE,), ("gpu-08",), inside=inside),
    ):
        told = {s.commands[0].split()[0:2][-1]: s.precondition or "" for s in steps if s.commands}
        (ending,) = [told[word] for word in told if word in ("48213", "requeue")]
        assert ending.startswith("ranks on gpu-[07-08] have mounts of their own")
        assert ending.endswith("the dumps that were found are in the evidence")
        assert sum("mounts of their own" in words for words in told.values()) == 1
    lost = remedies(odd, (), JOB, (), (), inside=inside, unread=True)
    assert any("not all of their dumps could be read" in (s.precondition or "") for s in lost)
    plain = remedies(odd, (), JOB, (), ())
    assert not any("mounts" in (s.precondition or "") for s in plain)
