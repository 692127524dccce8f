"""Lines of known meaning that are neither progress nor an exception: limits, launch, versions."""

import re
from collections.abc import Iterable, Iterator

from sluggish.facts.log import LogSign, Version
from sluggish.loglines.line import Line
from sluggish.loglines.sign import Sign
from sluggish.loglines.sign import sign as _sign
from sluggish.loglines.signs_setup import SETUP_SIGNS

SIGNS: tuple[Sign, ...] = (
    *SETUP_SIGNS,
    # ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory
    _sign(
        "memlock", "ibv_reg_mr", "ibv_create_cq", "ibv_create_qp",
        form=r"Call to ibv_(?:reg_mr\w*|create_cq|create_qp) failed with error "
        r"(?P<detail>Cannot allocate memory)",
    ),
    # RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible ...
    # unable to allocate shared memory(shm) for file </torch_123>: No space left on device (28)
    # NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)
    _sign(
        "shm_full", "shared memory", "/dev/shm", "Bus error", "bus error",
        form=r"out of shared memory|unable to (?:allocate|open|write to|resize) shared memory"
        r"|Error while (?:creating|attaching to) shared memory segment"
        r"|/dev/shm\S{0,100}.{0,80}No space left|No space left on device.{0,80}/dev/shm"
        r"|killed by signal: Bus error|Unexpected bus error encountered in worker",
    ),
    # OSError: [Errno 28] No space left on device: '/ckpt/step_500'
    _sign(
        "disk_full", "No space left on device", "Disk quota exceeded",
        form=r"(?:No space left on device|Disk quota exceeded)"
        r"(?::? ?['\"]?(?P<detail>/[^'\"\s]{1,300}))?",
    ),
    # Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 3000
    _sign(
        "duplicate_gpu", "Duplicate GPU detected",
        form=r"Duplicate GPU detected ?: rank (?P<detail>\d{1,6} and rank \d{1,6} both on CUDA "
        r"device \w{1,12})",
    ),
    # RendezvousTimeoutError        The client socket has timed out after 600s while trying to ...
    # torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 63/64
    # clients joined.                 (TCPStore: wait_for_workers; who did join is a number only)
    _sign(
        "rendezvous_timeout", "clients joined", "RendezvousTimeout", "client socket has timed out",
        form=r"Timed out after \d{1,7} seconds waiting for clients\. (?P<detail>\d{1,6}/\d{1,6}) "
        r"clients joined|RendezvousTimeoutError|The client socket has timed out after [^.]{1,120}",
    ),
    # Waiting in store based barrier to initialize process group for rank: 3, key: ... (world_size=
    # 64, num_workers_joined=63, timeout=0:30:00)
    _sign(
        "rendezvous_wait", "store based barrier", "num_workers_joined",
        form=r"(?:Waiting in store based barrier|Timed out initializing process group in store)"
        r".{0,200}?rank: ?(?P<me>\d{1,6}).{0,200}?\(world_size=(?P<world>\d{1,6}), "
        r"(?:num_workers_joined|worker_count)=(?P<joined>\d{1,6})",
    ),
    # wait timeout after 1800000ms, keys: /default_pg/0//cpu//0      store->get('0') got error
    _sign(
        "store_timeout", "wait timeout after", "store->get(", "Socket Timeout",
        "Timeout waiting for key",
        form=r"wait timeout after (?P<detail>\d{1,12}ms, keys: \S{1,200})|store->get\(.{1,80}\) "
        r"got error|Socket Timeout|Timeout waiting for key",
    ),
    # RuntimeError: DataLoader worker (pid 5681) is killed by signal: Killed.
    # RuntimeError: DataLoader worker (pid(s) 5, 6) exited unexpectedly
    _sign(
        "worker_killed", "DataLoader worker",
        form=r"DataLoader worker \(pid(?:\(s\))? (?P<detail>[\d, ]{1,200})\) (?:is killed by "
        r"signal: [\w ]{1,30}|exited unexpectedly)",
    ),
    # RuntimeError: DataLoader timed out after 120 seconds
    _sign(
        "loader_timeout", "DataLoader timed out",
        form=r"DataLoader timed out after (?P<detail>\d{1,9}) seconds",
    ),
    # ERROR: Unexpected segmentation fault encountered in worker.      (torch's DataLoader.cpp)
    _sign(
        "worker_crashed", "encountered in worker",
        form=r"Unexpected (?P<detail>segmentation fault|floating-point exception) encountered "
        r"in worker",
    ),
    # CUDA error: uncorrectable ECC error encountered        Cuda failure 999 'unknown error'
    # nvidia-container-cli: detection error: nvml error: gpu is lost: unknown
    _sign(
        "cuda_error", "CUDA error: ", "Cuda failure", "cudaError", "nvml error: gpu",
        form=r"CUDA error: (?P<detail>(?!out of memory)[^\n]{3,120})"
        r"|Cuda failure (?P<d2>[^\n]{1,100})|(?P<d3>cudaError[A-Z]\w{2,60}"
        r"|nvml error: gpu is lost)",
    ),
    # terminate called after throwing an instance of 'c10::Error'
    _sign(
        "terminate", "terminate called",
        form=r"terminate called (?:after throwing an instance of '(?P<detail>[^']{1,120})'"
        r"|without an active exception)",
    ),
    # srun ... --kill-on-bad-exit=1 --wait=60      (a launch script that prints what it runs)
    _sign(
        "launch_flags", "srun ", "torchrun ", "--kill-on-bad-exit",
        form=r"(?:^|[+ ])(?P<detail>(?:srun (?!error|Job|Force)|torchrun )-.{1,600})"
        r"|(?P<d2>--kill-on-bad-exit\S{0,4})",
    ),
    # Failed to initialize NVML: Driver/library version mismatch
    # Error 803: system has unsupported display driver / cuda driver combination
    # (cudaErrorSystemDriverMismatch: the loaded module and the libraries are of two versions)
    _sign(
        "driver_mismatch", "Driver/library version mismatch", "driver/library version mismatch",
        "CUDA driver version is insufficient",
        "unsupported display driver",
    ),
    # ... expected world_size=64 but 63 ranks ...    WORLD_SIZE (16) does not match
    _sign(
        "world_mismatch", "world size", "world_size", "WORLD_SIZE",
        form=r"world[ _]size[^\n]{0,60}(?:mismatch|does not match|expected|not equal)",
    ),
    # NET/OFI Unable to insert remote address into address vector for device 1
    _sign("ofi_address", "Unable to insert remote address"),
    # Bootstrap : no socket interface found      NCCL WARN Bootstrap : no usable ...
    _sign(
        "no_interface", "no socket interface found", "No socket interface found",
        "No interface found",
        form=r"no socket interface found|No interface found[^\n]{0,80}|"
        r"Unable to find a usable (?:network|interface)",
    ),
    # NCCL INFO NET/Socket : Using [0]ens5:10.0.0.18<0> [1]vethe2e6725:fe80::4811%vethe2e6725<0>
    _sign(
        "virtual_interface", "Bootstrap : Using", "Bootstrap: Using", "NET/Socket : Using",
        form=r"(?:Bootstrap ?|NET/Socket ): Using [^\n]{0,400}?"
        r"\[\d{1,2}\](?P<detail>(?:veth|docker|virbr|cni|flannel|cali|podman)[\w.-]{0,20}):",
    ),
    # ACS is enabled on bridge ...   /   P2P is disabled between connected GPUs
    _sign(
        "p2p_hint", "P2P is disabled between", "IOMMU", "ACS is enabled", "ACS enabled",
        form=r"P2P is disabled between NVLINK connected GPUs[^\n]{0,80}|ACS (?:is )?enabled"
        r"|Missing \"?iommu=pt\"?|IOMMU (?:is )?(?:enabled|active)",
    ),
    # torch._dynamo / inductor: compiling takes minutes and prints
    _sign(
        "compile", "Compiling ", "compiling and loading", "torch._inductor", "AOTAutograd",
        form=r"\bcompiling (?:and loading|the|model|graph|fused)|\[__recompiles\]|autotune\b",
    ),
    # Importing container image .../ pyxis: importing docker image ...
    _sign("image_import", "pyxis: importing", "importing docker image", "enroot import"),
    # [E socket.cpp:957] ... failed to connect to [gpu-01]:29500 (errno: 111 - Connection refused)
    _sign(
        "connect_failed", "failed to connect", "Connection refused", "No route to host",
        form=r"failed to connect to \[?(?P<detail>[\w.:-]{1,200})|(?P<d2>No route to host)"
        r"|(?P<d3>Connection refused)",
    ),
    # Connection closed by peer [10.0.3.5]:8592.     remote process exited ...
    _sign(
        "peer_closed", "closed by peer", "reset by peer", "remote process exited",
        form=r"Connection (?:closed|reset) by peer(?: \[(?P<detail>[\w.:]{1,80})\])?"
        r"|remote process exited",
    ),
)  # fmt: skip

# NCCL version 2.27.7+cuda12.9        torch version: 2.8.0a0      (first lines of a job)
_VERSIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nccl", re.compile(r"\bNCCL version[ :]{1,3}(?P<v>\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")),
    (
        "torch",
        re.compile(
            r"\b(?:py)?torch(?: version|==|\.__version__)[ :=]{0,3}(?P<v>\d\.\d{1,3}[\w.+]{0,30})",
            re.IGNORECASE,
        ),
    ),
    (
        "driver",
        re.compile(
            r"\b(?:NVIDIA )?driver version[ :=]{1,3}(?P<v>\d{3}\.\d{1,3}(?:\.\d{1,3})?)",
            re.IGNORECASE,
        ),
    ),
    (
        "cuda",
        re.compile(r"\bcuda (?:runtime )?version[ :=]{1,3}(?P<v>\d{1,2}\.\d{1,2})", re.IGNORECASE),
    ),
)

_WORDS: dict[str, list[Sign]] = {}
for _one in SIGNS:
    for _word in _one.words:
        _WORDS.setdefault(_word, []).append(_one)
_ANY = re.compile("|".join(re.escape(word) for word in sorted(_WORDS, key=len, reverse=True)))
_VERSION_WORD = re.compile(r"version|torch==|__version__", re.IGNORECASE)
_QUIET = ("srun ", "torchrun ", "IOMMU", "world size", "world_size", "Compiling ", "Socket Timeout",
          "shared memory", "AOTAutograd", "torch._inductor", "WORLD_SIZE", "/dev/shm")  # fmt: skip
"""Words too common in ordinary lines to stop a scan for."""

NEEDLES: tuple[bytes, ...] = (
    *(word.encode() for word in _WORDS if word not in _QUIET),
    b"NCCL version ",
)


def parse(lines: Iterable[Line]) -> Iterator[LogSign | Version]:
    """Signs and versions; a line may be several."""
    versions: set[tuple[str | None, int | None, str, str]] = set()
    for line in lines:
        text = line.text
        if _VERSION_WORD.search(text):
            yield from _version(line, versions)
        found_words = {found[0] for found in _ANY.finditer(text)}
        kinds: set[str] = set()
        for sign in (sign for word in sorted(found_words) for sign in _WORDS[word]):
            if sign.kind in kinds or not (found := sign.form.search(text)):
                continue
            kinds.add(sign.kind)
            yield _fact(line, sign, found)


def _fact(line: Line, sign: Sign, found: re.Match[str]) -> LogSign:
    groups = found.groupdict()
    if sign.kind == "rendezvous_wait":
        detail = f"{groups['joined']}/{groups['world']}"
        rank = int(groups["me"])
    else:
        detail = next((groups[g] for g in ("detail", "d2", "d3") if groups.get(g)), "")
        rank = line.rank
    return LogSign(
        node=line.node, rank=line.rank if line.rank is not None else rank, at=line.at,
        kind=sign.kind, detail=detail[:300], order=line.order, line=line.raw,
    )  # fmt: skip


def _version(line: Line, seen: set[tuple[str | None, int | None, str, str]]) -> Iterator[Version]:
    for component, form in _VERSIONS:
        if found := form.search(line.text):
            key = (line.node, line.rank, component, found["v"])
            if key not in seen and len(seen) < 20_000:
                seen.add(key)
                yield Version(
                    node=line.node, rank=line.rank, component=component, version=found["v"],
                    line=line.raw,
                )  # fmt: skip
