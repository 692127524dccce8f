"""The other warnings of NCCL about network, setup and peers, by fixed words.

Formats: NVIDIA/nccl src/misc/{ibvwrap,socket,shmutils}.cc, src/init.cc, src/transport/*.cc, tags
v2.4 to v2.30.7. A closed peer is always an echo of somebody else's death.
"""

NVLS = "Failed to bind NVLink SHARP"
# One needle a trouble; the first that stands in the message decides. Order: special before general.
TROUBLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1, curr state INIT
    ("Call to ibv_modify_qp failed", "modify_qp", ()),
    # Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory
    ("Call to ibv_reg_", "reg_mr", ()),
    ("Call to ibv_create_", "reg_mr", ("Cannot allocate memory",)),
    # NET/IB : Unable to open device erdma_1
    ("Unable to open device", "open_device", ()),
    # socketProgress: Connection closed by remote peer gpu-07<41109>
    ("Connection closed by remote peer", "peer_closed", ()),
    # Net : Call to recv from 10.0.0.9<58355> failed : Broken pipe
    ("Call to recv from", "peer_closed", ("Broken pipe", "Connection reset by peer")),
    ("Call to send to", "peer_closed", ("Broken pipe", "Connection reset by peer")),
    # socketStartConnect: Connect to 10.0.0.9<41109> failed : No route to host
    ("No route to host", "no_route", ()),
    ("Network is unreachable", "no_route", ()),
    # socketPollConnect: connect to 10.0.0.9<40961> returned 110(Connection timed out)
    ("returned 110(", "no_route", ("onnect to",)),
    ("Connect to ", "socket", (" failed",)),
    ("Call to connect", "socket", (" failed",)),
    ("Connection refused", "socket", ()),
    # Bootstrap : no socket interface found
    ("no socket interface found", "bootstrap", ()),
    ("No interface found", "bootstrap", ()),
    ("No socket interface found", "bootstrap", ()),
    # Error while creating shared memory segment /dev/shm/nccl-... (size 9637888)
    ("Error while creating shared memory segment", "shm", ()),
    ("Error: failed to extend /dev/shm", "shm", ()),
    ("Error while attaching to shared memory segment", "shm", ()),
    # Cuda failure 'peer access is not supported between these two devices'
    ("peer access is not supported", "p2p", ()),
    ("peer mapping resources exhausted", "p2p", ()),
    # NET/IB : SHARP coll init error: Cannot create SHARP job(-11)   (nccl-rdma-sharp-plugins)
    ("SHARP coll init error", "sharp", ()),
    # Cannot initialize CollNet, using point-to-point network instead
    ("Cannot initialize CollNet", "sharp", ()),
    # MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel ...
    ("MNNVL (cliqueSize", "imex", ("not working",)),
    # Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 ...
    (NVLS, "nvls", ()),
    # Detected mixed local Net device counts across ranks (min 7, max 8)
    ("mixed local Net device counts", "mixed_hcas", ()),
    ("local Net devices (max ", "mixed_hcas", ()),
    # NET/Socket : peer 10.0.0.9<35022> message truncated : receiving 524288 bytes instead of 65536
    ("message truncated : receiving", "size_mismatch", ()),
    # NET/IB: Device 3 marked as failed. Initiating recovery? ...   (2.29 on, port failover)
    ("marked as failed", "other", ("Device ",)),
    ("communicator encountered a fatal error", "other", ()),
)

NEEDLES: tuple[str, ...] = tuple(dict.fromkeys(needle for needle, _, _ in TROUBLES))


def kind(msg: str) -> str | None:
    """Which trouble a message is, or None."""
    for needle, word, also in TROUBLES:
        if needle in msg and (not also or any(more in msg for more in also)):
            return word
    return None
