// The powers of the betas of adam and its kin.
#ifndef WEFT_OPS_SCHEMA_BETA_POWERS_H_
#define WEFT_OPS_SCHEMA_BETA_POWERS_H_

#include <algorithm>

#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// Whether output `output` of the op, a symbol of Op::output_args(), is a power that other ops
// compute: with attribute use_global_beta_pow, the op names it and does not write it.
inline bool LeavesBetaPower(const Op& op, Symbol output) {
  if (!op.BoolAttr("use_global_beta_pow").value_or(false)) return false;
  for (const char* slot : {"Beta1PowOut", "Beta2PowOut"}) {
    const absl::Span<const Symbol> powers = op.Output(slot);
    if (std::find(powers.begin(), powers.end(), output) != powers.end()) return true;
  }
  return false;
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BETA_POWERS_H_
