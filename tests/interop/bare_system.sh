#!/bin/bash
# The wheel in a bare system that has Python and pip: installs it, and rewrites, verifies and trains a
# program, in Python and by the commands, on two threads and in two processes (Gloo).
#
# usage: tests/interop/bare_system.sh WHEEL FOLDER
#
# As root. FOLDER is the root of the system, such as an unpacked image. If it is missing or empty, it
# becomes a Debian 12 with Python and pip, by debootstrap.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: tests/interop/bare_system.sh WHEEL FOLDER" >&2; exit 2; }
data=$(dirname "$(realpath "$0")")/../data/fit_a_line
wheel=$(realpath "$1")
root=$(realpath -m "$2")
[ -n "$(ls -A "$root" 2>/dev/null)" ] ||
  debootstrap --variant=minbase --include=python3,python3-pip bookworm "$root"

rm -rf "$root/trial"
mkdir "$root/trial"
cp "$wheel" "$data"/{main.pb,startup.pb,feeds.npz} "$root/trial/"
cat > "$root/trial/trial.py" <<'END'
import array
import weft
out = weft.transpile("main.pb", "startup.pb", mode="grad_allreduce", nranks=2)
weft.verify(out, original="main.pb").raise_if_wrong()
x = memoryview(array.array("f", range(260))).cast("B").cast("f", (20, 13))
y = memoryview(array.array("f", range(20))).cast("B").cast("f", (20, 1))
with weft.Run(out, ranks=2) as run:
    losses = [float(run.step({"x": x, "y": y})[0]) for _ in range(3)]
print("Python:", losses)
END
# Libraries are found by /proc/self/exe.
unshare --mount bash -euc 'mount -t proc proc "$1/proc"
  exec chroot "$1" env -i PATH=/usr/local/bin:/usr/bin:/bin bash -euo pipefail' _ "$root" <<'END'
cd /trial
pip install -q --no-index --break-system-packages --root-user-action=ignore ./*.whl
python3 trial.py
transpile --mode grad_allreduce --startup_in startup.pb --startup_out s.pb main.pb o.pb
weft verify o.pb --original main.pb --startup s.pb --original_startup startup.pb
weft run o.pb --startup s.pb --feeds feeds.npz --ranks 2 --metrics threads.jsonl > /dev/null
weft launch -n 2 -- weft run o.pb --startup s.pb --feeds feeds.npz --backend gloo \
  --metrics processes.jsonl > /dev/null
END
losses() { sed 's/,"ms".*//' "$1"; }
diff <(losses "$root/trial/threads.jsonl") <(losses "$root/trial/processes.jsonl")
echo "the wheel works in $root: two threads and two processes have the same losses"
