#include "ops/analysis/values/rank_memory.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weft {

RankValue RankMemory::Read(Symbol name) const {
  const VarId var = Resolve(name);
  if (var.valid()) return Read(var);
  RankValue nothing;
  if (expressions_.AreMade()) nothing.expr = expressions_.table()->Initial(kEmptyVarName);
  return nothing;
}

void RankMemory::ForgetExpressions(double nranks) {
  for (size_t i = 0; i < values().size(); ++i) {
    const VarId var(static_cast<uint32_t>(i));
    RankValue& value = at(var);
    const double factor = value.unscaled_sums == 0 ? 1 : std::pow(nranks, value.unscaled_sums);
    // Most have the right value; skipping the write saves memory bandwidth.
    if (value.factor != factor) value.factor = factor;
    if (value.is_zero) value.is_zero = false;
    if (!value.has_unknown_scale) continue;
    value.expr = expressions_.Named(absl::StrCat("distorted ", program_.var(var).name()),
                                    "out_of_proportion");
  }
}

bool RankMemory::AreLaidOutAlike(VarId a, VarId b) const {
  const Storage::Buffer* const first = BufferOf(a);
  const Storage::Buffer* const second = BufferOf(b);
  if (first == second) return true;
  const Storage::Layout of_first = storage().LayoutOf(*first),
                        of_second = storage().LayoutOf(*second);
  return of_first.is_known() && of_first.offsets == of_second.offsets &&
         of_first.counts == of_second.counts;
}

}  // namespace weft
