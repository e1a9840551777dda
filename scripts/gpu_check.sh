#!/bin/bash
# Checks and measures Weft on a machine with a GPU, in the folder that scripts/pack_gpu_check.sh makes:
#
#   ./gpu_check.sh [--minutes 9] [--lib_dir DIR] [--json FILE]
#
# Needs a driver, python3 and glibc 2.36 or later, and nothing else. docs/gpu.md.
set -euo pipefail
command -v python3 >/dev/null || { echo "gpu_check.sh: error: no python3; install it" >&2; exit 2; }
exec python3 -B "$(dirname "$(realpath "$0")")/gpu_check.py" "$@"
