#!/bin/bash
# python_test.py in the Python that WEFT_TORCH_PYTHON names; without that variable, nothing.
#
# usage: python_torch_test.sh PYTHON_TEST ARGUMENT...
set -euo pipefail
if [ -z "${WEFT_TORCH_PYTHON:-}" ]; then
  echo "skipped: WEFT_TORCH_PYTHON names no Python with torch"
  exit 0
fi
env=(env -i PATH="$PATH" HOME="$TEST_TMPDIR" TMPDIR="$TEST_TMPDIR" PYTHONDONTWRITEBYTECODE=1)
"${env[@]}" "$WEFT_TORCH_PYTHON" -c "import numpy, torch"  # without them, tests are skipped
"${env[@]}" "$WEFT_TORCH_PYTHON" "$@"
