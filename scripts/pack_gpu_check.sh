#!/bin/bash
# Makes a folder for gpu_check.sh, on a machine with a CUDA toolkit; it needs no GPU:
#
#   scripts/pack_gpu_check.sh FOLDER [BAZEL_FLAG...]
#
# The folder has tests and tools for GPUs, the libraries of Debian that they need, and programs, in an
# archive. It is at most 60 MiB. docs/gpu.md.
set -euo pipefail
root=$(dirname "$(dirname "$(realpath "$0")")")
cd "$root"
. scripts/common.sh
[ $# -ge 1 ] && [[ $1 != -* ]] || die "usage: scripts/pack_gpu_check.sh FOLDER [BAZEL_FLAG...]"
mkdir -p "$1"
out=$(realpath "$1")
shift
for nvcc in "${WEFT_CUDA_PATH:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
  nvcc=$nvcc/bin/nvcc
  [ ! -x "$nvcc" ] || break
done
[ -x "$nvcc" ] || die "no CUDA toolkit" "docs/testing.md says where it is looked for"
cuda=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')

flags=(-c opt --config=all_gpus "$@")
tests=(executor/gpu/nccl_communicator_test executor/streams/cuda_stream_test ops/gpu/gpu_kernels_test
  tests/training/train_placed_cuda_test)
say "building for CUDA $cuda"
bazel_terse build "${flags[@]}" //tools:weft //tools:transpile //executor/gpu:libfake_nccl.so \
  //executor/gpu:libold_nccl.so "${tests[@]}" </dev/null
bin=$(bazel info "${flags[@]}" bazel-bin 2>/dev/null)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,lib,programs,executor/gpu}
for program in tools/weft "${tests[@]}"; do
  strip -o "$work/bin/$(basename "$program")" "$bin/$program"
done
cp "$bin"/executor/gpu/lib{fake,old}_nccl.so "$work/executor/gpu/"  # for nccl_communicator_test
# All but what belongs to glibc, which is the machine's, as the driver is.
ldd "$work"/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so|/lib(cuda|cudart|cublas|nccl|cudnn)' |
  xargs cp -L -t "$work/lib"

say "adding the programs"
for archive in mlp_adam deep_models conv_amp large_models; do
  tar xJf "tests/data/$archive.tar.xz" -C "$work/programs"
done
cd "$work/programs"
rm -rf gpt2_* ./*/*.params ./*/reference.npz ./*/persistables.txt
mkdir mlp_adam_ranks
"$bin/tools/transpile" mlp_adam/main.pb mlp_adam_ranks/main.pb --mode grad_allreduce \
  --startup_in mlp_adam/startup.pb --startup_out mlp_adam_ranks/startup.pb
cd "$root"
printf '{"cuda": "%s", "build": "%s"}\n' "$cuda" "$(git rev-parse HEAD)" > "$work/manifest.json"

say "packing"
tar c -C "$work" . | xz -T1 -6 --lzma2=preset=6,dict=256MiB > "$out/files.tar.xz"
cp scripts/{gpu_check.sh,gpu_check.py,gpu_check_ops.py,gpu_check_torch.py,compare_losses.py} "$out/"
mib=$(du -sm "$out" | cut -f1)
[ "$mib" -le 60 ] || die "$out has $mib MiB; expected at most 60"
say "$out has $mib MiB; copy it to a machine with a GPU, and run gpu_check.sh there"
