// Indices of a sharded table as those of one shard.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The part of a table of index_num rows over nshards that a shard has: its numbers, from 0, and
// ignore_value for the others'.
absl::StatusOr<Kernel> ShardIndex(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t size = spec.attrs.Int("index_num"), shards = spec.attrs.Int("nshards");
  const int64_t shard = spec.attrs.Int("shard_id"), ignored = spec.attrs.Int("ignore_value");
  if (size < 1 || shards < 1 || shard < 0 || shard >= shards) {
    return absl::InvalidArgumentError(absl::StrCat("attribute shard_id: ", shard, " of nshards ",
                                                   shards, ", of index_num ", size));
  }
  const int64_t width = (size + shards - 1) / shards;
  return op.InPlace(out, x).Make(
      Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndices("X", x(ctx), size));
        for (size_t i = 0; i < indices.size(); ++i) {
          out.data<T>(ctx)[i] =
              static_cast<T>(indices[i] / width == shard ? indices[i] % width : ignored);
        }
        return absl::OkStatus();
      });
}

}  // namespace

void AddShardIndexKernels(KernelTable* table) { table->Add("shard_index", ShardIndex); }

}  // namespace weft
