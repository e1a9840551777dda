#!/bin/bash
# libweft_c.so exports what symbols.txt lists, which is what the header declares, and nothing else; and
# the example in C compiles without warnings, and trains. Neither it nor the commands need
# the libraries of engines.
#
# usage: library_test.sh libweft_c.so symbols.txt weft.h train.c MAIN.pb STARTUP.pb COMMAND...
set -euo pipefail
library=$(realpath "$1") symbols=$(realpath "$2") header=$(realpath "$3") example=$(realpath "$4")
main=$(realpath "$5") startup=$(realpath "$6")
commands=$(realpath "${@:7}")
cd "$TEST_TMPDIR"

echo "== the header declares the symbols"
diff "$symbols" <(grep -oE '\bweft_[a-z_]+\(' "$header" | tr -d '(' | LC_ALL=C sort -u)

echo "== the library exports them alone"
diff "$symbols" <(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | LC_ALL=C sort -u)

echo "== MPI, Gloo and CUDA are not needed"
for file in "$library" $commands; do
  if readelf -d "$file" | grep -E 'NEEDED.*lib(mpi|gloo|cuda|nccl)'; then exit 1; fi
done

echo "== the header is C, and the example trains"
mkdir -p include/weft/c
cp "$header" include/weft/c/weft.h
gcc -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude "$example" "$library" -o train \
  -Wl,-rpath,"$(dirname "$library")"
ln -sf "$library" libweft_c.so.1
LD_LIBRARY_PATH=. ./train "$main" "$startup" trained.npz | tee output.txt
grep -q '^verified: yes$' output.txt
[ "$(grep -c '^step [0-2]: mean_0.tmp_0 [0-9.]*$' output.txt)" -eq 3 ]
[ -s trained.npz ]
