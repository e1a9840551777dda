// Op seed. Paddle's recomputation puts it before a dropout, so that recomputing drops the same
// elements.
#include <cstdint>
#include <limits>
#include <random>

#include "ops/cpu/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the seed; if that is 0, a new number from the generator of the rank in every step.
absl::StatusOr<Kernel> Seed(const KernelSpec& spec) {
  OpKernel op(spec);
  const Out out = op.out("Out");
  const int64_t seed = spec.attrs.Int("seed");
  return op.Supports(ElementTypesOf<int32_t>()).Make([=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(seed, &RandomState::dropout, ctx.random, &own));
    std::uniform_int_distribution<int32_t> draw(1, std::numeric_limits<int32_t>::max());
    *out.data<int32_t>(ctx) = seed != 0 ? static_cast<int32_t>(seed) : draw(*engine);
    return absl::OkStatus();
  });
}

}  // namespace

void AddSeedKernels(KernelTable* table) { table->Add("seed", Seed); }

}  // namespace weft
