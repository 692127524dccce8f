"""What every form of nvidia-smi's answer is read into, and how a flat record becomes a Gpu."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import Gpu, GpuApps, GpuLinks, GpuProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One answer of nvidia-smi."""

    gpus: tuple[Gpu, ...]
    attached: int | None = None
    """`attached_gpus`: how many the driver has; more than listed where `-i` picked some."""
    countable: bool = True
    """False where the form cannot tell a missing GPU from one that was not asked for."""
    cut: str = ""
    """What was expected where the text ends too early; empty if it is complete."""
    hostname: str | None = None
    part: str = ""
    """What little it tells, and so that the rest is not known; empty for a report of the GPUs."""
    listed: int | None = None
    links: tuple[GpuLinks, ...] = ()
    apps: tuple[GpuApps, ...] = ()

    def count(self, lost: bool) -> int | None:
        """GPUs that answer. Fewer than attached is a loss only if nvidia-smi itself says so."""
        if not self.countable and self.attached is None:
            return None
        gone = sum(1 for gpu in self.gpus if _is_gone(gpu))
        if lost or gone:
            return len(self.gpus) - gone
        return max(len(self.gpus), self.attached or 0)


_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def refuse_other_nodes(answers: Sequence[str]) -> None:
    """ValueError where answers with no GPU in common stand in one text: files of nodes, joined."""
    known = [found for answer in answers if (found := set(_UUID.findall(answer)))]
    if any(one.isdisjoint(other) for one, other in pairwise(known)):
        raise ValueError(f"expected the answer of one node, found {len(known)} of different GPUs")


def _is_gone(gpu: Gpu) -> bool:
    return any("gpu is lost" in error.lower() for error in gpu.errors)


Record = Mapping[str, str]
Processes = Sequence[Mapping[str, str]]
_STATE = ("ecc_errors/", "remapped_rows/", "gpu_recovery_action", "gpu_reset_status/")


def tells_no_state(paths: Iterable[str]) -> bool:
    """Whether neither errors, remapped rows nor the recovery action were asked for."""
    return not any(path.startswith(_STATE) for path in paths)


def build(
    record: Record,
    processes: Processes | None,
    *,
    index: int | None,
    driver: str | None,
    at: datetime | None,
) -> Gpu:
    """A Gpu from `path -> text`, in the words of the XML; `-q` is spelled alike by its reader."""

    def get(*paths: str) -> str | None:
        return next((record[p] for p in paths if v.value(record.get(p)) is not None), None)

    mode = v.flag(get("ecc_mode/current_ecc", "ecc_mode/current"))
    return Gpu(
        node=None,
        index=index,
        pci=v.pci(get("pci/pci_bus_id", "pci/bus_id", "id")),
        uuid=get("uuid", "gpu_uuid"),
        serial=get("serial", "serial_number"),
        name=get("product_name"),
        driver=driver,
        recovery_action=_recovery(record),
        ecc_mode=mode,
        ecc_volatile_uncorrectable=_ecc(record, "volatile", "un"),
        ecc_aggregate_uncorrectable=_ecc(record, "aggregate", "un"),
        ecc_volatile_correctable=_ecc(record, "volatile", ""),
        ecc_aggregate_correctable=_ecc(record, "aggregate", ""),
        sram_threshold_exceeded=v.flag(get("ecc_errors/aggregate/sram_threshold_exceeded")),
        remapped_correctable=v.whole(
            get("remapped_rows/remapped_row_corr", "remapped_rows/correctable_error")
        ),
        remapped_uncorrectable=v.whole(
            get("remapped_rows/remapped_row_unc", "remapped_rows/uncorrectable_error")
        ),
        remap_pending=v.flag(get("remapped_rows/remapped_row_pending", "remapped_rows/pending")),
        remap_failed=v.flag(
            get("remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred")
        ),
        unrepairable_memory=v.flag(
            get("ecc_errors/unrepairable_memory", "ecc_errors/aggregate/unrepairable_memory")
        ),
        repair_pending=_repair_pending(record),
        power_w=v.number(get(*_POWER)),
        power_limit_w=v.number(get(*_LIMIT)),
        default_power_limit_w=v.number(
            get("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")
        ),
        utilisation_pct=v.number(get("utilization/gpu_util", "utilization/gpu")),
        memory_utilisation_pct=v.number(get("utilization/memory_util", "utilization/memory")),
        memory_used_mib=v.whole(get("fb_memory_usage/used")),
        memory_total_mib=v.whole(get("fb_memory_usage/total")),
        sm_clock_mhz=v.whole(get("clocks/sm_clock", "clocks/sm")),
        max_sm_clock_mhz=v.whole(get("max_clocks/sm_clock", "max_clocks/sm")),
        temperature_c=v.number(get("temperature/gpu_temp", "temperature/gpu_current_temp")),
        throttle=_throttle(record),
        pcie_generation=v.whole(get(*_gen("current"))),
        pcie_max_generation=v.whole(get(*_gen("max"))),
        pcie_width=v.whole(get(*_width("current"))),
        pcie_max_width=v.whole(get(*_width("max"))),
        pcie_replays=v.whole(get("pci/replay_counter", "pci/replays_since_reset")),
        fabric_state=get("fabric/state"),
        fabric_status=get("fabric/status"),
        fabric_trouble=_fabric_trouble(record),
        cluster_uuid=_cluster(get("fabric/clusteruuid", "fabric/clusterUuid")),
        clique=v.whole(get("fabric/cliqueid", "fabric/cliqueId")),
        mig=v.flag(get("mig_mode/current_mig", "mig_mode/current")),
        errors=_errors(record),
        processes=tuple(_process(p) for p in processes or () if _pid(p) is not None),
        processes_listed=processes is not None,
        at=at,
    )


_POWER = (
    "gpu_power_readings/power_draw",
    "gpu_power_readings/average_power_draw",
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/instantaneous_power_draw",
    "power_readings/power_draw",
)
_LIMIT = (
    "gpu_power_readings/current_power_limit",
    "gpu_power_readings/enforced_power_limit",
    "power_readings/enforced_power_limit",
    "power_readings/power_limit",
)
_REASONS = ("clocks_event_reasons/", "clocks_throttle_reasons/")
_REASON_PREFIX = ("clocks_event_reason_", "clocks_throttle_reason_")
_TEXT_REASONS = {"idle": "gpu_idle", "display_clock_setting": "display_clocks_setting"}
_BAD_HEALTH = frozenset(
    {"degraded", "yes", "true", "unhealthy", "limited capacity", "insufficient"}
)


def _gen(which: str) -> tuple[str, ...]:
    link = "pci/pci_gpu_link_info/pcie_gen/"
    return (f"{link}{which}_link_gen", f"pci/gpu_link_info/pcie_generation/{which}")


def _width(which: str) -> tuple[str, ...]:
    link = "pci/pci_gpu_link_info/link_widths/"
    return (f"{link}{which}_link_width", f"pci/gpu_link_info/link_width/{which}")


def _recovery(record: Record) -> str | None:
    """The action word; drivers before about 565 have two flags instead."""
    action = v.value(record.get("gpu_recovery_action"))
    if action is not None:
        return action
    required = v.flag(record.get("gpu_reset_status/reset_required"))
    drain = v.flag(record.get("gpu_reset_status/drain_and_reset_recommended"))
    if required:
        return "Reset"
    if drain:
        return "Drain and Reset"
    return "None" if required is False else None


def _ecc(record: Record, window: str, un: str) -> int | None:
    """Sum over SRAM and DRAM in every spelling since Kepler; None where no counter is a number."""
    base = f"ecc_errors/{window}/"
    new = [v.whole(record.get(f"{base}{part}_{un}correctable")) for part in ("sram", "dram")]
    split = [
        v.whole(record.get(f"{base}sram_uncorrectable_{kind}"))
        for kind in ("parity", "secded", "sec-ded")
    ]
    found = [n for n in (*new, *(split if un else ())) if n is not None]
    if found:
        return sum(found)
    bits = "double" if un else "single"
    return v.whole(record.get(f"{base}{bits}_bit/total"))


def _repair_pending(record: Record) -> bool | None:
    flags = [
        v.flag(record.get(f"{where}{what}_repair_pending"))
        for where in ("ecc_errors/", "ecc_errors/aggregate/")
        for what in ("channel", "tpc")
    ]
    known = [f for f in flags if f is not None]
    return any(known) if known else None


def _throttle(record: Record) -> tuple[str, ...]:
    out: list[str] = []
    for path, text in record.items():
        if path.startswith(_REASONS) and v.flag(text):
            name = path.rsplit("/", 1)[-1]
            for prefix in _REASON_PREFIX:
                name = name.removeprefix(prefix)
            out.append(_TEXT_REASONS.get(name, name))
    return tuple(out)


def _fabric_trouble(record: Record) -> tuple[str, ...]:
    return tuple(
        path.rsplit("/", 1)[-1]
        for path, text in record.items()
        if path.startswith("fabric/health/")
        and not path.endswith("/partition_assigned")
        and (v.value(text) or "").lower() in _BAD_HEALTH
    )


def _cluster(text: str | None) -> str | None:
    """None for the zeros of a GPU that is in no domain."""
    return text if text and set(text) - set("0-") else None


def _errors(record: Record) -> tuple[str, ...]:
    """Fields that say `Unknown Error`, `GPU is lost`, ... as `path: text`; at most 16."""
    found = [f"{path}: {word}" for path, text in record.items() if (word := v.broken(text))]
    return tuple(found[:16])


def _pid(process: Mapping[str, str]) -> int | None:
    return v.whole(process.get("pid") or process.get("process_id"))


def _process(process: Mapping[str, str]) -> GpuProcess:
    return GpuProcess(
        pid=_pid(process) or 0,
        name=v.value(process.get("process_name") or process.get("name")),
        kind=v.value(process.get("type")),
        memory_mib=v.whole(process.get("used_memory") or process.get("used_gpu_memory")),
    )
