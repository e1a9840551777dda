#!/bin/bash
# steps_in_pytorch.py, or ranks_in_pytorch.py, in the Python that WEFT_TORCH_PYTHON names; without that variable, nothing.
#
# usage: steps_test.sh SCRIPT MAKE_STEPS EXPORTER TOOL
set -euo pipefail
if [ -z "${WEFT_TORCH_PYTHON:-}" ]; then
  echo "skipped: WEFT_TORCH_PYTHON names no Python with torch"
  exit 0
fi
env -i PATH="$PATH" HOME="$TEST_TMPDIR" PYTHONDONTWRITEBYTECODE=1 "$WEFT_TORCH_PYTHON" "$1" \
  "$(dirname "$2")" "$(dirname "$3")" "$(realpath "$4")"
