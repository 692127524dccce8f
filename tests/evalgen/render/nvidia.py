"""nvidia-smi: `-q -x`, the query CSV over a window, and the GPUs on the PCI bus.

Field layout of driver 580 (DTD v13): public captures of the XML in exporters' test data.
"""

from __future__ import annotations

import random
from xml.sax.saxutils import escape

from ..clock import at
from ..world import Gpu, Node, World

COLUMNS = (
    "timestamp, index, pci.bus_id, uuid, utilization.gpu [%], utilization.memory [%], "
    "power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], "
    "memory.used [MiB], temperature.gpu, clocks_event_reasons.active"
)


def state(world: World, gpu: Gpu, rng: random.Random) -> dict[str, float | int]:
    """Utilisation, watts and clocks of one instant, from what the GPU does."""
    m = world.model
    busy = gpu.activity in ("spin", "work", "slow")
    watts = {"idle": m.idle_w, "context": m.context_w, "spin": m.spin_w}.get(gpu.activity, m.work_w)
    spread = 0.12 if gpu.activity in ("work", "slow") else 0.004
    watts *= 1 + rng.uniform(-spread, spread * 0.7)
    if gpu.power_w is not None:
        watts = gpu.power_w * (1 + rng.uniform(-0.01, 0.01))
    util = 100 if gpu.activity == "spin" else rng.randrange(93, 101) if busy else 0
    mem = rng.randrange(28, 47) if gpu.activity in ("work", "slow") else 0
    sm = gpu.sm_mhz or (m.idle_sm_mhz if gpu.activity == "idle" else m.max_sm_mhz)
    if gpu.activity == "work" and gpu.sm_mhz is None:
        sm = m.max_sm_mhz - 15 * rng.randrange(0, 9)
    throttle = gpu.throttle or (0x4 if gpu.activity == "work" and sm < m.max_sm_mhz else 0)
    if gpu.activity == "idle":
        throttle = 0x1
    heat = {"work": 24, "slow": 24, "spin": 5}.get(gpu.activity, 0)
    return {"util": util, "mem": mem, "watts": watts, "sm": sm, "throttle": throttle,
            "temp": gpu.temperature_c + heat}  # fmt: skip


def samples(world: World, node: Node) -> str:
    """One header, then a row a GPU a second over the window."""
    rng = random.Random(f"{world.name}/{node.name}/samples")
    rows = [COLUMNS]
    start = world.taken_at - world.window_s - 6 + node.offset_s
    for k in range(int(world.window_s)):
        for gpu in node.gpus:
            if not gpu.listed:
                continue
            s, t = state(world, gpu, rng), at(start + k * 1.004 + gpu.index * 0.0007)
            rows.append(
                f"{t:%Y/%m/%d %H:%M:%S}.{t.microsecond // 1000:03d}, {gpu.index}, {_bus(gpu)}, "
                f"{gpu.uuid}, {s['util']} %, {s['mem']} %, {s['watts']:.2f} W, "
                f"{world.model.limit_w}.00 W, {s['sm']} MHz, {world.model.max_sm_mhz} MHz, "
                f"{gpu.memory_mib} MiB, {s['temp']}, 0x{s['throttle']:016x}"
            )
    return "\n".join(rows) + "\n"


def bus(node: Node) -> str:
    """Vendor and class of the devices that sysfs still shows, as `grep -s .` prints them."""
    there = [(g.pci, "0x10de", "0x030200") for g in node.gpus if g.on_bus]
    there += [(p.pci, "0x15b3", "0x020700") for p in node.ports]
    there.sort()
    base = "/sys/bus/pci/devices"
    lines = [f"{base}/{pci}/vendor:{vendor}" for pci, vendor, _ in there]
    lines += [f"{base}/{pci}/class:{kind}" for pci, _, kind in there]
    return "\n".join(lines) + "\n"


def smi_stderr(node: Node) -> str:
    """What nvidia-smi says of a GPU that it cannot open."""
    return "".join(
        f"Unable to determine the device handle for GPU{g.index}: {g.pci.upper()}: Unknown Error\n"
        for g in node.gpus
        if not g.listed
    )


def smi(world: World, node: Node) -> str:
    """`nvidia-smi -q -x`."""
    rng = random.Random(f"{world.name}/{node.name}/smi")
    listed = [g for g in node.gpus if g.listed]
    stamp = at(world.taken_at - 17 + node.offset_s)
    head = (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
        "<nvidia_smi_log>\n"
        f"\t<timestamp>{stamp:%a %b %d %H:%M:%S %Y}</timestamp>\n"
        f"\t<driver_version>{node.driver}</driver_version>\n"
        f"\t<cuda_version>{world.cuda}</cuda_version>\n"
        f"\t<attached_gpus>{len(listed)}</attached_gpus>\n"
    )
    return head + "".join(_gpu(world, g, rng) for g in listed) + "</nvidia_smi_log>\n"


def _bus(gpu: Gpu) -> str:
    return "0000" + gpu.pci.upper()


def _yes(flag: bool) -> str:
    return "Yes" if flag else "No"


def _ecc(kind: str, correctable: int, uncorrectable: int) -> str:
    extra = "<sram_threshold_exceeded>No</sram_threshold_exceeded>" if kind == "aggregate" else ""
    return (
        f"\t\t\t<{kind}>\n"
        "\t\t\t\t<sram_correctable>0</sram_correctable>\n"
        "\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>\n"
        "\t\t\t\t<sram_uncorrectable_secded>0</sram_uncorrectable_secded>\n"
        f"\t\t\t\t<dram_correctable>{correctable}</dram_correctable>\n"
        f"\t\t\t\t<dram_uncorrectable>{uncorrectable}</dram_uncorrectable>\n"
        + (f"\t\t\t\t{extra}\n" if extra else "")
        + f"\t\t\t</{kind}>\n"
    )


_REASONS = (
    ("gpu_idle", 0x1), ("applications_clocks_setting", 0x2), ("sw_power_cap", 0x4),
    ("hw_slowdown", 0x8), ("hw_thermal_slowdown", 0x40), ("hw_power_brake_slowdown", 0x80),
    ("sync_boost", 0x10), ("sw_thermal_slowdown", 0x20), ("display_clocks_setting", 0x100),
)  # fmt: skip


def _gpu(world: World, g: Gpu, rng: random.Random) -> str:
    m, s = world.model, state(world, g, rng)
    reasons = "".join(
        f"\t\t\t<clocks_event_reason_{name}>"
        f"{'Active' if int(s['throttle']) & bit else 'Not Active'}</clocks_event_reason_{name}>\n"
        for name, bit in _REASONS
    )
    process = ""
    if g.pid is not None:
        process = (
            "\t\t\t<process_info>\n"
            "\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>\n"
            "\t\t\t\t<compute_instance_id>N/A</compute_instance_id>\n"
            f"\t\t\t\t<pid>{g.pid}</pid>\n\t\t\t\t<type>C</type>\n"
            "\t\t\t\t<process_name>/opt/venv/bin/python</process_name>\n"
            f"\t\t\t\t<used_memory>{max(g.memory_mib - 4, 0)} MiB</used_memory>\n"
            "\t\t\t</process_info>\n"
        )
    free = m.memory_mib - 1024 - g.memory_mib
    return (
        f'\t<gpu id="{_bus(g)}">\n'
        f"\t\t<product_name>{escape(m.product)}</product_name>\n"
        "\t\t<product_brand>NVIDIA</product_brand>\n"
        f"\t\t<product_architecture>{m.arch}</product_architecture>\n"
        "\t\t<persistence_mode>Enabled</persistence_mode>\n"
        "\t\t<addressing_mode>HMM</addressing_mode>\n"
        "\t\t<mig_mode>\n\t\t\t<current_mig>Disabled</current_mig>\n"
        "\t\t\t<pending_mig>Disabled</pending_mig>\n\t\t</mig_mode>\n"
        "\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>\n"
        f"\t\t<serial>{g.serial}</serial>\n\t\t<uuid>{g.uuid}</uuid>\n"
        f"\t\t<minor_number>{g.index}</minor_number>\n"
        f"\t\t<gpu_recovery_action>{g.recovery}</gpu_recovery_action>\n"
        "\t\t<pci>\n"
        f"\t\t\t<pci_bus>{g.pci[5:7].upper()}</pci_bus>\n\t\t\t<pci_device>00</pci_device>\n"
        f"\t\t\t<pci_domain>0000</pci_domain>\n\t\t\t<pci_device_id>{m.device_id}</pci_device_id>\n"
        f"\t\t\t<pci_bus_id>{_bus(g)}</pci_bus_id>\n"
        "\t\t\t<pci_gpu_link_info>\n\t\t\t\t<pcie_gen>\n\t\t\t\t\t<max_link_gen>5</max_link_gen>\n"
        "\t\t\t\t\t<current_link_gen>5</current_link_gen>\n\t\t\t\t</pcie_gen>\n"
        "\t\t\t\t<link_widths>\n\t\t\t\t\t<max_link_width>16x</max_link_width>\n"
        "\t\t\t\t\t<current_link_width>16x</current_link_width>\n\t\t\t\t</link_widths>\n"
        "\t\t\t</pci_gpu_link_info>\n"
        "\t\t\t<replay_counter>0</replay_counter>\n"
        "\t\t</pci>\n"
        "\t\t<performance_state>P0</performance_state>\n"
        f"\t\t<clocks_event_reasons>\n{reasons}\t\t</clocks_event_reasons>\n"
        "\t\t<fb_memory_usage>\n"
        f"\t\t\t<total>{m.memory_mib} MiB</total>\n\t\t\t<reserved>1024 MiB</reserved>\n"
        f"\t\t\t<used>{g.memory_mib} MiB</used>\n\t\t\t<free>{free} MiB</free>\n"
        "\t\t</fb_memory_usage>\n"
        "\t\t<utilization>\n"
        f"\t\t\t<gpu_util>{s['util']} %</gpu_util>\n\t\t\t<memory_util>{s['mem']} %</memory_util>\n"
        "\t\t\t<encoder_util>0 %</encoder_util>\n\t\t\t<decoder_util>0 %</decoder_util>\n"
        "\t\t</utilization>\n"
        "\t\t<ecc_mode>\n\t\t\t<current_ecc>Enabled</current_ecc>\n"
        "\t\t\t<pending_ecc>Enabled</pending_ecc>\n\t\t</ecc_mode>\n"
        "\t\t<ecc_errors>\n"
        + _ecc("volatile", 0, g.volatile_uncorrectable)
        + _ecc("aggregate", g.aggregate_correctable,
               g.aggregate_uncorrectable + g.volatile_uncorrectable)
        + "\t\t</ecc_errors>\n"
        "\t\t<remapped_rows>\n"
        f"\t\t\t<remapped_row_corr>{g.remap_correctable}</remapped_row_corr>\n"
        f"\t\t\t<remapped_row_unc>{g.remap_uncorrectable}</remapped_row_unc>\n"
        f"\t\t\t<remapped_row_pending>{_yes(g.remap_pending)}</remapped_row_pending>\n"
        f"\t\t\t<remapped_row_failure>{_yes(g.remap_failed)}</remapped_row_failure>\n"
        "\t\t\t<row_remapper_histogram>\n"
        f"\t\t\t\t<row_remapper_histogram_max>{3072 - g.remap_uncorrectable} bank(s)"
        "</row_remapper_histogram_max>\n"
        f"\t\t\t\t<row_remapper_histogram_high>{g.remap_uncorrectable} bank(s)"
        "</row_remapper_histogram_high>\n"
        "\t\t\t\t<row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial>\n"
        "\t\t\t\t<row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low>\n"
        "\t\t\t\t<row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>\n"
        "\t\t\t</row_remapper_histogram>\n"
        "\t\t</remapped_rows>\n"
        "\t\t<temperature>\n"
        f"\t\t\t<gpu_temp>{s['temp']} C</gpu_temp>\n\t\t\t<gpu_temp_tlimit>{87 - int(s['temp'])} C"
        "</gpu_temp_tlimit>\n\t\t</temperature>\n"
        "\t\t<gpu_power_readings>\n\t\t\t<power_state>P0</power_state>\n"
        f"\t\t\t<average_power_draw>{s['watts']:.2f} W</average_power_draw>\n"
        f"\t\t\t<instant_power_draw>{s['watts']:.2f} W</instant_power_draw>\n"
        f"\t\t\t<current_power_limit>{m.limit_w}.00 W</current_power_limit>\n"
        f"\t\t\t<default_power_limit>{m.limit_w}.00 W</default_power_limit>\n"
        f"\t\t\t<max_power_limit>{m.limit_w}.00 W</max_power_limit>\n"
        "\t\t</gpu_power_readings>\n"
        f"\t\t<clocks>\n\t\t\t<graphics_clock>{s['sm']} MHz</graphics_clock>\n"
        f"\t\t\t<sm_clock>{s['sm']} MHz</sm_clock>\n\t\t</clocks>\n"
        f"\t\t<max_clocks>\n\t\t\t<graphics_clock>{m.max_sm_mhz} MHz</graphics_clock>\n"
        f"\t\t\t<sm_clock>{m.max_sm_mhz} MHz</sm_clock>\n\t\t</max_clocks>\n"
        f"\t\t<fabric>\n\t\t\t<state>{g.fabric[0]}</state>\n"
        f"\t\t\t<status>{g.fabric[1]}</status>\n"
        "\t\t\t<cliqueId>0</cliqueId>\n"
        "\t\t\t<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid>\n"
        "\t\t\t<health>\n\t\t\t\t<bandwidth>N/A</bandwidth>\n\t\t\t</health>\n\t\t</fabric>\n"
        f"\t\t<processes>\n{process}\t\t</processes>\n"
        "\t</gpu>\n"
    )  # fmt: skip


def imex(world: World, node: Node) -> str:
    """Form: `nvidia-imex-ctl -N` as a public capture of a compute domain prints it."""
    channels = "".join(f"channel{n}\n" for n in range(node.imex_channels))
    rows = "\n".join(f"Node #{n.number}   - {n.addr}   - READY" for n in world.nodes)
    head = "  ".join(f"{n.number:>2}" for n in world.nodes)
    table = "\n".join(f"{n.number:>8}        " + "   ".join("C" for _ in world.nodes)
                      for n in world.nodes)  # fmt: skip
    return (
        f"==> /dev/nvidia-caps-imex-channels <==\n{channels}==> nvidia-imex-ctl -N <==\n"
        "Connectivity Table Legend:\n"
        "I - Invalid - Node wasn't reachable, no connection status available\n"
        "N - Never Connected\n"
        "R - Recovering - Connection was lost, but clean up has not yet been triggered.\n"
        "D - Disconnected - Connection was lost, and clean up has been triggreed.\n"
        "A - Authenticating - If GSSAPI enabled, client has initiated mutual authentication.\n"
        f"C - Connected - Ready for operation\n\n6/21/2026 09:30:40.659\nNodes:\n{rows}\n\n"
        f" Nodes From\\To {head}\n{table}\nDomain State: UP\n"
    )
