#!/bin/bash
# distribute_in_paddle.py, and the scripts of examples/python, in the Python that WEFT_PADDLE_PYTHON
# names; without Paddle, nothing.
#
# usage: distribute_test.sh SCRIPT LIBRARY PACKAGE_FILE FEEDS.npz
set -euo pipefail
script=$(realpath "$1") feeds=$(realpath "$4") examples=$(realpath examples/python)
WEFT_C_LIBRARY=$(realpath "$2")
WEFT_PYTHON=$(dirname "$(dirname "$(realpath "$3")")")
export WEFT_C_LIBRARY WEFT_PYTHON PYTHONPATH=$WEFT_PYTHON PYTHONDONTWRITEBYTECODE=1 HOME=$TEST_TMPDIR
python=${WEFT_PADDLE_PYTHON:-python3}
if ! "$python" -c 'import paddle' 2> /dev/null; then
  echo "skipped: $python has no Paddle"
  exit 0
fi
cd "$TEST_TMPDIR"
"$python" -W ignore "$script"

cp "$feeds" .
echo "== examples/python"
"$python" -W ignore "$examples/train.py" 2> /dev/null | tee alone.txt
[ "$(grep -c '^step ' alone.txt)" = 5 ]
"$python" -W ignore -m paddle.distributed.launch --nproc_per_node 2 --log_dir log \
  "$examples/train_on_ranks.py" > launch.txt 2>&1 || { cat launch.txt log/*; exit 1; }
for rank in 0 1; do [ "$(grep -c '^step ' "log/workerlog.$rank")" = 5 ]; done
"$python" -W ignore "$examples/train_here.py" 2> /dev/null | tee here.txt
[ "$(grep -c '^step ' here.txt)" = 5 ]
ls model.pdparams
