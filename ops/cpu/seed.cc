// Op seed, which Paddle's recomputation puts before a dropout so that it drops the same elements
// when it is computed again.
#include <cstdint>
#include <limits>
#include <random>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the seed, or where that is 0 another number, from the stream of the rank, in every step.
absl::StatusOr<Kernel> Seed(const KernelSpec& spec) {
  OpKernel op(spec);
  const Out out = op.out("Out");
  const int64_t seed = spec.attrs.Int("seed");
  return op.Takes(ElementTypesOf<int32_t>()).Make([=](const KernelContext& ctx) -> absl::Status {
    if (seed == 0 && ctx.random == nullptr) {
      return absl::FailedPreconditionError("no random numbers to draw from");
    }
    std::uniform_int_distribution<int32_t> draw(1, std::numeric_limits<int32_t>::max());
    *out.data<int32_t>(ctx) = seed != 0 ? static_cast<int32_t>(seed) : draw(ctx.random->dropout);
    return absl::OkStatus();
  });
}

}  // namespace

void AddSeedKernels(KernelTable* table) { table->Add("seed", Seed); }

}  // namespace weft
