// What kernels and inference both read from the attributes of ops of Paddle 1.
#ifndef WEFT_OPS_SCHEMA_EXTRA_PADDLE1_PARTS_H_
#define WEFT_OPS_SCHEMA_EXTRA_PADDLE1_PARTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Columns of partial_concat and partial_sum: [begin, begin + count) of so many.
struct ColumnPart {
  ColumnPart(const OpAttrs& attrs, int64_t columns)
      : begin(attrs.Int("start_index")), count(attrs.Int("length")) {
    if (begin < 0) begin += columns;
    if (count < 0) count = columns - begin;
  }
  bool IsIn(int64_t columns) const {
    return begin >= 0 && count > 0 && begin <= columns && count <= columns - begin;
  }

  int64_t begin, count;
};

// The functions of fused_elemwise_activation, as functor_list names them: the first one is applied
// last.
struct FusedFunctions {
  explicit FusedFunctions(const OpAttrs& attrs) {
    std::vector<std::string> names = attrs.Strings("functor_list");
    if (names.size() != 2) return;
    for (std::string& name : names) name = std::string(absl::StripSuffix(name, "_grad"));
    is_unary_first = absl::StartsWith(names[0], "elementwise_");
    if (is_unary_first) std::swap(names[0], names[1]);
    unary = names[0];
    binary = names[1];
  }
  bool AreKnown() const {
    return (binary == "elementwise_add" || binary == "elementwise_mul") &&
           (unary == "relu" || unary == "scale" || unary == "tanh" || unary == "sigmoid");
  }

  std::string unary, binary;
  // Out = binary(X, unary(Y)); otherwise unary(binary(X, Y)).
  bool is_unary_first = false;
};

// Y repeats before and after its elements as it is added to X: X is [before, elements, after].
struct RepeatedY {
  RepeatedY(const Dims& x, Dims y, int64_t axis) {
    if (axis < 0) axis = static_cast<int64_t>(x.size()) - static_cast<int64_t>(y.size());
    while (axis >= 0 && !y.empty() && y.back() == 1 &&
           axis + static_cast<int64_t>(y.size()) <= static_cast<int64_t>(x.size()) &&
           x[axis + y.size() - 1] != 1) {
      y.pop_back();
    }
    fits = axis >= 0 && axis + y.size() <= x.size();
    for (size_t d = 0; fits && d < x.size(); ++d) {
      const int64_t place = static_cast<int64_t>(d) - axis;
      if (place < 0) {
        before = Times(before, x[d]);
      } else if (place >= static_cast<int64_t>(y.size())) {
        after = Times(after, x[d]);
      } else {
        fits = x[d] == y[place] || x[d] == -1 || y[place] == -1;
        elements = Times(elements, x[d]);
      }
    }
  }

  // -1: one is not known.
  static int64_t Times(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : a * b; }

  bool fits = false;
  int64_t before = 1, elements = 1, after = 1;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_PADDLE1_PARTS_H_
