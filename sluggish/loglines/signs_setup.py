"""Lines of known meaning from a job's start: launch, store, container, driver, limits, storage."""

from sluggish.loglines.sign import Sign, sign

SETUP_SIGNS: tuple[Sign, ...] = (
    # [W socket.cpp:663] [c10d] The client socket has failed to connect to [gpu-01]:29500 (errno:
    # 113 - No route to host).                     (torch/csrc/distributed/c10d/socket.cpp)
    sign(
        "store_no_route", "No route to host", "Network is unreachable",
        form=r"client socket has failed to connect to \[?(?P<detail>[\w.:-]{1,200}?)\]?:\d{1,5} "
        r"\(errno: (?:113|101) - ",
    ),
    # [c10d] The IPv4 network addresses of (gpu-01, 29500) cannot be retrieved (gai error: -2 - ...
    # (the same of IPv6 is printed where all is well)
    sign(
        "store_unresolved", "cannot be retrieved",
        form=r"IPv4 network addresses of \((?P<detail>[^)]{1,200})\) cannot be retrieved",
    ),
    # The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).
    sign(
        "port_in_use", "Address already in use",
        form=r"server socket has failed to (?:bind|listen).{0,200}Address already in use"
        r"|EADDRINUSE.{0,40}Address already in use|Address already in use.{0,40}EADDRINUSE",
    ),
    # NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8     (src/bootstrap.cc)
    sign("rank_count", "mismatch in rank count"),
    # RuntimeError: Too many open files. Communication with the workers is no longer possible.
    sign("files_limit", "Too many open files"),
    # RuntimeError: The NVIDIA driver on your system is too old (found version 11040).
    # Error 804: forward compatibility was attempted on non supported HW
    # CUDA error: no kernel image is available for execution on the device
    sign(
        "driver_old", "driver on your system is too old", "forward compatibility was attempted",
        "no kernel image is available",
    ),
    # slurmstepd: error: pyxis: container start failed with error code: 1
    # slurmstepd: error: pyxis:     enroot-mount: failed to mount: /scratch at ...: No such file
    # docker: Error response from daemon: failed to create task for container: ...
    sign(
        "container_failed", "pyxis: ", "enroot", "failed to create task for container",
        "nvidia-container-cli: ",
        form=r"pyxis: (?P<detail>(?:container start failed|couldn't start container"
        r"|failed to (?:import|create|unpack)).{0,120})"
        r"|(?P<d2>enroot-\w{1,20}: (?:failed|error).{0,200})"
        r"|(?P<d3>failed to create task for container.{0,200}"
        r"|nvidia-container-cli: (?:initialization|mount|ldcache|container) error:"
        r"(?!.{0,40}(?:version mismatch|is lost)).{0,120})",
    ),
    # OSError: [Errno 116] Stale file handle: '/data/a'      OSError: [Errno 5] Input/output error
    sign(
        "storage_error", "[Errno 116]", "[Errno 5]", "[Errno 107]", "[Errno 112]", "[Errno 121]",
        "Stale file handle",
        form=r"(?P<detail>\[Errno (?:116|5|107|112|121)\] [A-Z][\w/ ]{3,40}"
        r"(?:: ?['\"]?/[^'\"\s]{1,300})?|Stale file handle)",
    ),
)  # fmt: skip
