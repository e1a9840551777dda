// Finds data that end up in slots of class or row indices: their values must be below a limit.
#ifndef WEFT_TOOLS_NUMERIC_DATA_LIMITS_H_
#define WEFT_TOOLS_NUMERIC_DATA_LIMITS_H_

#include <cstdint>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

class DataLimits {
 public:
  explicit DataLimits(const Program& program);

  // The exclusive limit of a variable's elements, which are 0 or more; none: unlimited.
  absl::optional<int64_t> Of(absl::string_view name) const;

 private:
  void Visit(const Op& op);
  void Limit(absl::Span<const Symbol> names, int64_t below);
  absl::optional<TensorType> TypeOf(const Op& op, Symbol name) const;
  int64_t DimOf(const Op& op, Symbol name, int64_t axis) const;

  const Program& program_;
  absl::flat_hash_map<Symbol, std::set<Symbol>> sources_;
  absl::flat_hash_map<Symbol, int64_t> limits_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_DATA_LIMITS_H_
