#!/bin/bash
# Runs a test of the page's scripts in node.
#
# usage: node_test.sh TEST.js [ARGUMENT...]
set -euo pipefail
if ! command -v node >/dev/null; then
  echo "node is not installed: apt-get install nodejs" >&2
  exit 1
fi
exec node "$@"
