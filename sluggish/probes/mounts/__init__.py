"""Mounts, whether network mounts answer, space of local file systems, targets of Lustre.

Plain user. `stat` of a dead NFS mount never ends and cannot be killed: each one runs in the
background and is left alone after 5 s. `df` is asked for local file systems only, for the same
reason. It calls FUSE local, so FUSE types are left out, and it is left alone after 5 s as well.
A `stat` that answers clears no single target: a Lustre client that lost one of its servers still
answers it from the others. Each target's `import` is read without a word to its server.
Trap: `/proc/self/mounts` writes a blank in a path as `\\040`.
"""

import re
from collections.abc import Iterator

from sluggish.facts.host import Filesystem, LustreTarget, Mount
from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections
from sluggish.probes.mounts.lustre import targets

ID = "mounts"
COMMAND = """\
echo '==> /proc/self/mounts <=='; cat /proc/self/mounts
t=$(mktemp -d) || exit 1
n=0
set --
while read -r _ path type _; do
  case $type in
    nfs|nfs4|lustre|gpfs|beegfs|ceph|cifs|smb3|9p|wekafs|pvfs2|orangefs|afs) ;;
    fuse|fuse.*) set -- "$@" -x "$type" ;;
    *) continue ;;
  esac
  n=$((n + 1)); [ "$n" -gt 64 ] && break
  printf '%s\\n' "$path" > "$t/$n.path"
  sh -c 's=$(date +%s.%N); stat -f "$1"; echo "answered from $s to $(date +%s.%N)" > "$2"' \\
    sh "$(printf '%b' "$path")" "$t/$n.done" > /dev/null 2>&1 < /dev/null &
done < /proc/self/mounts
t=$t sh -c 'df -P -l "$@"; df -P /dev/shm | tail -n 1; : > "$t/df.done"' \\
  sh "$@" > "$t/df" 2>/dev/null < /dev/null &
( for kind in osc mdc mgc; do
    for f in /proc/fs/lustre/$kind/*/import /sys/kernel/debug/lustre/$kind/*/import; do
      [ -r "$f" ] && echo "==> $f <==" && cat "$f" && echo
    done
  done; : > "$t/imports.done" ) > "$t/imports" 2>/dev/null < /dev/null &
i=0
while [ "$i" -lt 50 ]; do
  [ "$(ls "$t" | grep -c done)" -gt "$((n + 1))" ] && break
  sleep 0.1; i=$((i + 1))
done
echo '==> df <=='
if [ -r "$t/df.done" ]; then cat "$t/df"; else echo 'no answer in 5.0'; fi
for p in "$t"/*.path; do
  [ -r "$p" ] || continue
  echo "==> stat $(cat "$p") <=="
  if [ -r "${p%.path}.done" ]; then cat "${p%.path}.done"; else echo 'no answer in 5.0'; fi
done
cat "$t/imports"
[ -r "$t/imports.done" ] || echo '==> imports of lustre <=='
rm -rf "$t"
"""
FACTS: tuple[type, ...] = (Mount, Filesystem, LustreTarget)
BINARY = False

NETWORK = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "wekafs", "pvfs2",
    "orangefs", "afs",
}  # fmt: skip
"""Types whose server can be away; `fuse.*` too."""
PSEUDO = {
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "debugfs", "tracefs",
    "securityfs", "pstore", "bpf", "configfs", "fusectl", "hugetlbfs", "autofs", "binfmt_misc",
    "rpc_pipefs", "nsfs", "efivarfs", "rootfs", "selinuxfs", "ramfs",
}  # fmt: skip
LIMIT = 2000
"""Mounts of a node; containers multiply them."""

# 10.1.2.3:/export/data /data nfs4 rw,relatime,vers=4.2,hard 0 0
_MOUNT = re.compile(r"(\S{1,1000}) (/\S{0,1000}) ([\w.\-]{1,40}) (\S{1,2000}) \d+ \d+\s*\Z")
# 10.1.2.3:/export/data on /data type nfs4 (rw,relatime,hard)   (the command `mount`)
_MOUNT_CMD = re.compile(r"(\S{1,1000}) on (/\S{0,1000}) type ([\w.\-]{1,40}) \((\S{1,2000})\)")
# /dev/nvme0n1p2  1921724676 1800000000 24000000  99% /
_DF = re.compile(
    r"(\S{1,300})\s+(\d{1,18})\s+(\d{1,18})\s+-?\d{1,18}\s+(?:\d{1,3}%|-)\s+(/.{0,1000})\Z",
    re.ASCII,
)
# answered in 0.003      answered from 1795400530.101 to 1795400530.104      no answer in 5.0
_ANSWER = re.compile(r"answered in (\d{1,6}(?:\.\d{1,9})?)\s*\Z", re.ASCII)
_ANSWER_FROM = re.compile(
    r"answered from (\d{1,12}(?:\.\d{1,9})?)(?:\.%?N)? to (\d{1,12}(?:\.\d{1,9})?)(?:\.%?N)?\s*\Z",
    re.ASCII,
)
_NO_ANSWER = re.compile(r"no answer in (\d{1,6}(?:\.\d{1,9})?)\s*\Z", re.ASCII)
_SNIFF = re.compile(
    rb"^==> (?:/proc/(?:self/|1/)?mounts|stat /[^\n]{0,500}) <==\r?$"
    rb"|^\S{1,300} /\S{0,300} (?:proc|sysfs|ext4|xfs|nfs4?|lustre|overlay|tmpfs) \S{1,500} 0 0\r?$"
    rb"|^\S{1,300} on /\S{0,300} type [\w.]{1,30} \([a-z]\S{0,500}\)\r?$"
    rb"|^[ \t]{0,8}import:[ \t]*\r?\n[ \t]{1,8}name: [\w.-]{1,60}-(?:osc|mdc)-"
    rb"|\A\s{0,20}Filesystem\s+1(?:024|K)-blocks\s+Used\s+Avail",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """Sections of this probe, /proc/mounts, the list of `mount`, `df`, or imports of Lustre."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[Mount | Filesystem | LustreTarget]:
    """Mounts that can hold data, with their answer where they were asked; space; targets."""
    found = dict(sections(text))
    bodies = [found[name] for name in found if name.endswith("mounts")] if found else [text]
    answers = {_unescape(n[5:]): b for n, b in found.items() if n.startswith("stat /")}
    mounts: dict[str, Mount] = {}
    for body in bodies:
        for mount in _mounts(body, answers, origin):
            mounts[mount.path] = mount  # a later mount hides an earlier one
    for path, body in answers.items():
        if path not in mounts:
            mounts[path] = _mount(path, "", "", "", body, origin)
    spaces = list(_spaces(found.get("df", "" if found else text), origin))
    imports = list(targets(text, origin))
    if not mounts and not spaces and not imports and not any(_is_list(body) for body in bodies):
        raise ValueError("expected /proc/self/mounts, the list of mount, df -P or lctl")
    yield from mounts.values()
    yield from spaces
    yield from imports


def _is_list(body: str) -> bool:
    return any(_MOUNT.match(line) or _MOUNT_CMD.match(line) for line in body.splitlines())


def _mounts(body: str, answers: dict[str, str], origin: Origin) -> Iterator[Mount]:
    for line in body.splitlines()[:LIMIT]:
        match = _MOUNT.match(line) or _MOUNT_CMD.match(line)
        if match and match[3] not in PSEUDO:
            path = _unescape(match[2])
            yield _mount(path, match[3], match[1], match[4], answers.get(path, ""), origin)


def _mount(path: str, fstype: str, source: str, options: str, answer: str, origin: Origin) -> Mount:
    answered, waited = _answer(answer.strip())
    return Mount(
        node=origin.node,
        path=path,
        fstype=fstype,
        source=source,
        answered=answered,
        waited_s=waited,
        read_only="ro" in options.split(","),
    )


def _answer(text: str) -> tuple[bool | None, float | None]:
    if match := _ANSWER.match(text):
        return True, float(match[1])
    if match := _ANSWER_FROM.match(text):
        return True, max(0.0, round(float(match[2]) - float(match[1]), 3))
    if match := _NO_ANSWER.match(text):
        return False, float(match[1])
    return None, None


def _spaces(body: str, origin: Origin) -> Iterator[Filesystem]:
    seen: set[str] = set()
    for line in body.splitlines()[:LIMIT]:
        match = _DF.match(line.rstrip())
        if match and match[4] not in seen:
            seen.add(match[4])
            size, used = int(match[2]) * 1024, int(match[3]) * 1024
            yield Filesystem(node=origin.node, path=match[4], size_bytes=size, used_bytes=used)


def _unescape(path: str) -> str:
    """`/my\\040data` -> `/my data`."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8) & 0xFF), path)
