#!/bin/bash
# distribute_in_paddle.py, and the scripts of examples/python, in the Python that WEFT_PADDLE_PYTHON
# names; without that variable, nothing.
#
# usage: distribute_test.sh SCRIPT LIBRARY PACKAGE_FILE FEEDS.npz
set -euo pipefail
script=$(realpath "$1") feeds=$(realpath "$4") examples=$(realpath examples/python)
if [ -z "${WEFT_PADDLE_PYTHON:-}" ]; then
  echo "skipped: WEFT_PADDLE_PYTHON names no Python with Paddle"
  exit 0
fi
library=$(realpath "$2") package=$(dirname "$(dirname "$(realpath "$3")")")
# Paddle 3.3.1 aborts in the environment of a Bazel test.
python=(env -i PATH="$PATH" HOME="$TEST_TMPDIR" WEFT_C_LIBRARY="$library" WEFT_PYTHON="$package"
  PYTHONPATH="$package" PYTHONDONTWRITEBYTECODE=1
  ${FLAGS_enable_pir_api:+FLAGS_enable_pir_api="$FLAGS_enable_pir_api"} "$WEFT_PADDLE_PYTHON" -W ignore)
cd "$TEST_TMPDIR"
"${python[@]}" "$script"

cp "$feeds" .
echo "== examples/python"
"${python[@]}" "$examples/train.py" 2> /dev/null | tee alone.txt
[ "$(grep -c '^step ' alone.txt)" = 5 ]
"${python[@]}" -m paddle.distributed.launch --nproc_per_node 2 --log_dir log \
  "$examples/train_on_ranks.py" > launch.txt 2>&1 || { cat launch.txt log/*; exit 1; }
for rank in 0 1; do [ "$(grep -c '^step ' "log/workerlog.$rank")" = 5 ]; done
"${python[@]}" "$examples/train_here.py" 2> /dev/null | tee here.txt
[ "$(grep -c '^step ' here.txt)" = 5 ]
ls model.pdparams
