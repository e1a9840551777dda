#!/bin/bash
# Links what bazel/shared_library.bzl lists.
#
# usage: link_shared_library.sh OUT SONAME EXPORTS WHOLE_ARCHIVE... -- ARCHIVE... -- FLAG...
set -euo pipefail
out=$1 soname=$2 exports=$3
shift 3
whole=() archives=()
while [ "$1" != -- ]; do whole+=("$1"); shift; done
shift
while [ "$1" != -- ]; do archives+=("$1"); shift; done
shift
script=$(mktemp)
trap 'rm -f "$script"' EXIT
{ echo '{ global:'; sed 's/$/;/' "$exports"; echo 'local: *; };'; } > "$script"
g++ -shared -o "$out" -Wl,-soname,"$soname" -Wl,--version-script="$script" -Wl,-z,defs -Wl,--gc-sections \
  -Wl,--as-needed -Wl,--whole-archive "${whole[@]}" -Wl,--no-whole-archive \
  -Wl,--start-group "${archives[@]}" -Wl,--end-group "$@" -lpthread -ldl -lm
