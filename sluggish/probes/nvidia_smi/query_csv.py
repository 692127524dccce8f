"""One-shot `--query-gpu ... --format=csv`: one row a GPU, header with old or canonical names."""

from sluggish.facts import smi_csv
from sluggish.facts import smi_values as v
from sluggish.facts.gpu import Gpu
from sluggish.facts.origin import Origin
from sluggish.probes.nvidia_smi.report import Report, build, tells_no_state

# query field -> the XML's path; both names of a renamed field are here, the header decides
_PATHS = {
    "pci.bus_id": "pci/pci_bus_id",
    "gpu_bus_id": "pci/pci_bus_id",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "serial": "serial",
    "gpu_serial": "serial",
    "name": "product_name",
    "gpu_name": "product_name",
    "gpu_recovery_action": "gpu_recovery_action",
    "reset_status.reset_required": "gpu_reset_status/reset_required",
    "reset_status.drain_and_reset_recommended": "gpu_reset_status/drain_and_reset_recommended",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/double_bit/total",
    "ecc.errors.uncorrected.aggregate.total": "ecc_errors/aggregate/double_bit/total",
    "ecc.errors.corrected.volatile.total": "ecc_errors/volatile/single_bit/total",
    "ecc.errors.corrected.aggregate.total": "ecc_errors/aggregate/single_bit/total",
    "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded": (
        "ecc_errors/aggregate/sram_threshold_exceeded"
    ),
    "remapped_rows.correctable": "remapped_rows/remapped_row_corr",
    "remapped_rows.uncorrectable": "remapped_rows/remapped_row_unc",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "power.draw": "gpu_power_readings/power_draw",
    "power.draw.average": "gpu_power_readings/average_power_draw",
    "power.draw.instant": "gpu_power_readings/instant_power_draw",
    "enforced.power.limit": "gpu_power_readings/current_power_limit",
    "gpu.power.current_limit": "gpu_power_readings/current_power_limit",
    "power.limit": "power_readings/power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit",
    "utilization.gpu": "utilization/gpu_util",
    "utilization.memory": "utilization/memory_util",
    "memory.used": "fb_memory_usage/used",
    "memory.total": "fb_memory_usage/total",
    "clocks.sm": "clocks/sm_clock",
    "clocks.current.sm": "clocks/sm_clock",
    "clocks.max.sm": "max_clocks/sm_clock",
    "temperature.gpu": "temperature/gpu_temp",
    "pcie.link.gen.current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "mig.mode.current": "mig_mode/current_mig",
}
_ACTIVE = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")


def looks_like(text: str) -> bool:
    """A query header and no GPU in it twice: a window of samples is another probe's."""
    found = smi_csv.read(text)
    return found is not None and not found.repeats and bool(found.rows)


def is_all(text: str) -> bool:
    """Whether a file's head is this and little else."""
    found = smi_csv.read(text)
    return looks_like(text) and found is not None and found.mostly_rows


def read(text: str, origin: Origin) -> Report:
    """Rows to GPUs. Counts GPUs only where the query asked for the `count` column."""
    found = smi_csv.read(text)
    if found is None:
        raise ValueError("expected a header of query fields")
    gpus = tuple(_gpu(row, origin) for row in found.rows)
    counts = {v.whole(row.get("count")) for row in found.rows} - {None}
    hosts = {v.value(row.get("hostname")) for row in found.rows} - {None}
    asked = [_PATHS[name] for name in found.names if name in _PATHS]
    return Report(
        part="this query asks for nothing of their state" if tells_no_state(asked) else "",
        gpus=gpus,
        attached=counts.pop() if len(counts) == 1 else None,
        countable=False,
        hostname=hosts.pop() if len(hosts) == 1 else None,
    )


def _gpu(row: dict[str, str], origin: Origin) -> Gpu:
    record = {path: row[name] for name, path in _PATHS.items() if name in row}
    for name in _ACTIVE:
        for reason in v.reasons(row.get(name)):
            record[f"clocks_event_reasons/{reason}"] = "Active"
    return build(
        record,
        None,
        index=v.whole(row.get("index")),
        driver=v.value(row.get("driver_version")),
        at=v.moment(row.get("timestamp"), origin.utc_offset_s) or origin.taken_at,
    )
