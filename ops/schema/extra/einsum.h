// Equations of op einsum.
#ifndef WEFT_OPS_SCHEMA_EXTRA_EINSUM_H_
#define WEFT_OPS_SCHEMA_EXTRA_EINSUM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// A label for each dimension: the letters of the equation, and digits for the dimensions of "...",
// where 0 is the last one.
struct Einsum {
  std::vector<std::string> operands;
  std::string out;
  std::map<char, int64_t> sizes;  // -1: unknown

  Dims OutDims() const;
};

// Parses "ij,jk->ik" for operands of these dims, which may be unknown (-1). Without "->", the
// result has the dimensions of "...", then the letters that occur once, in alphabetical order.
// Dimensions of one label are equal, or 1. InvalidArgument, naming the fault, for other equations.
absl::StatusOr<Einsum> ParseEinsum(absl::string_view equation, const std::vector<Dims>& operands);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_EINSUM_H_
