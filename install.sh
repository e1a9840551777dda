#!/bin/bash
# Builds Weft and installs it for projects that do not build with Bazel:
#
#   PREFIX/bin/transpile, PREFIX/bin/weft
#   PREFIX/include/weft       headers: #include "weft/transpiler/transpile.h"
#   PREFIX/lib/libweft.a      what //transpiler links, position-independent
#   PREFIX/lib/libweft_executor.a, libweft_testing.a
#                             what runs programs, and what tests of passes need
#   PREFIX/lib/libweft_c.so   all of Weft for C: #include "weft/c/weft.h"
#   PREFIX/lib/cmake/weft     find_package(weft), targets weft::weft, weft_executor, weft_testing, weft_c
#   PREFIX/lib/pkgconfig      pkg-config weft, weft_c
#
# usage: ./install.sh PREFIX
#
# ./quickstart.sh installs the packages that the build needs.
set -euo pipefail
if [ $# -ne 1 ] || [[ $1 = -* ]]; then
  sed -n 's/^# \{0,1\}//; 2,15p' "$0" >&2
  exit 2
fi
prefix=$1
cd "$(dirname "$(realpath "$0")")"
flags=(-c opt --config=nocuda)
bazel build "${flags[@]}" //tools:transpile //tools:weft
mkdir -p "$prefix/bin"
install -m 755 bazel-bin/tools/transpile bazel-bin/tools/weft "$prefix/bin/"
bazel build "${flags[@]}" --force_pic //:install_tree
tar -xf bazel-bin/install_tree.tar -C "$prefix" --no-same-owner
echo "installed in $prefix"
