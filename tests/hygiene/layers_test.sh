#!/bin/bash
# Which rooms of the repository may need which others: one list of dependencies per target.
#
# usage: layers_test.sh TRANSPILER_DEPS TRANSPILE_DEPS RUNNER_DEPS CORE_KERNELS_DEPS CORE_SCHEMAS_DEPS \
#            VERIFIER_DEPS PASSES_DEPS CHECKER_DEPS
set -euo pipefail
status=0

# FILE lists what NAME depends on: MUST is among it, nothing that matches NEVER.
check() {
  local name=$1 file=$2 must=$3 never=$4
  if ! grep -qx "$must" "$file"; then
    echo "$name: expected $must among the dependencies" >&2
    status=1
  fi
  if grep -E "$never" "$file" >&2; then
    echo "$name must not depend on what stands above" >&2
    status=1
  fi
}

kernels='^//(executor|ops/cpu|ops/gpu)|^@local_cuda|^@system//:(onednn|mpi)'
check //transpiler "$1" //transpiler/passes/gradients:grad_all_reduce "$kernels|^//tools|^@system//:gtest"
# --rank_memory predicts what a run takes, which kernels decide.
check //tools:transpile "$2" //transpiler:transpiler \
  '^//ops/gpu|^@local_cuda|^@system//:(mpi|gtest)'
check //executor/run:runner "$3" //executor/plan:plan '^//(transpiler|tools|ops/cpu|ops/gpu)'
check //ops/cpu:core_kernels "$4" //ops:op_kernel '^//(ops/cpu/extra|ops/analysis|executor|transpiler)'
check //ops/schema:core_schemas "$5" //ops/schema:infer_functions '/extra|^//(ops/analysis|ops:)'
check //transpiler/verifier:verify "$6" //ops/analysis/values:rank_values \
  '^//(transpiler/(passes|pipeline|buckets)|transpiler:|proto/formats|executor|tools)'
check //transpiler/passes:builtin_passes "$7" //transpiler/pipeline:pass \
  '^//(transpiler/verifier|transpiler:|proto/formats|executor|tools)'
check //checker:check "$8" //checker:check '^//(base|executor|ops|proto|tools|transpiler)|^@system'
exit $status
