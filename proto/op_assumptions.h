// What the user says of unregistered ops (ops without a schema).
#ifndef WEFT_PROTO_OP_ASSUMPTIONS_H_
#define WEFT_PROTO_OP_ASSUMPTIONS_H_

#include <map>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Whatever it says, the op exchanges nothing with other ranks, and neither does its gradient op.
// If it says more, the op is a function of its inputs and attributes, too: it draws nothing.
struct OpAssumption {
  // An element of an output depends on those at its place in the inputs, which are broadcast to
  // each other from the last dimension on.
  bool is_elementwise = false;
  // Row i of each output depends on row i of the inputs that ranks have parts of, and on the whole
  // of the others. Rows are along dimension 0.
  bool is_per_sample = false;
  // Linear in all inputs together: the op of a sum is the sum of the op.
  bool is_linear = false;

  bool IsFunction() const { return is_elementwise || is_per_sample || is_linear; }

  friend bool operator==(const OpAssumption& a, const OpAssumption& b) {
    return std::tie(a.is_elementwise, a.is_per_sample, a.is_linear) ==
           std::tie(b.is_elementwise, b.is_per_sample, b.is_linear);
  }
};

// By op type.
using OpAssumptions = std::map<std::string, OpAssumption>;

// "elementwise|linear", "no_communication"; InvalidArgument for another word, or for none.
absl::StatusOr<OpAssumption> ParseOpAssumption(absl::string_view words);
std::string ToString(const OpAssumption& assumption);

// "my_op: elementwise|linear, other_op: no_communication". InvalidArgument, naming the op type, for
// other text and for a type that stands twice.
absl::StatusOr<OpAssumptions> ParseOpAssumptions(absl::string_view text);

// Of an op type, or of the op type whose gradient it computes (my_op_grad); nullptr: none.
const OpAssumption* FindAssumption(const OpAssumptions& assumptions, absl::string_view type);

}  // namespace weft

#endif  // WEFT_PROTO_OP_ASSUMPTIONS_H_
