// What a training program in PIR does not say: which ops are backward and which update, and whose
// gradient a value is. Found by following the data.
#ifndef WEFT_PROTO_FORMATS_PIR_TRAINING_H_
#define WEFT_PROTO_FORMATS_PIR_TRAINING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/formats/pir/document.h"

namespace weft::pir {

struct Training {
  // The op_role of every op (proto/op_role.h).
  //   The gradient of a loss: proto/formats/pir/losses.h. Backward is what depends on it.
  //   A gradient of a parameter is complete where its parts are summed. What depends on a complete
  //   one updates, as do ops that update parameters.
  //   Other ops after the loss belong to those that read them. Ops before it are forward.
  std::vector<int> roles;
  // By value: the value whose gradient it is; kNoValue: none, or unknown.
  std::vector<ValueIndex> primal;
  // By value: a gradient that goes on as part of another of the same value: a summand, or what an
  // op scales or sums over ranks.
  std::vector<bool> is_summand;
  // A complete gradient of a parameter that an op updates. None for an update by what does not
  // depend on a loss.
  struct Pair {
    uint32_t op;  // that makes the gradient, directly or in a list
    ValueIndex param;
    ValueIndex grad;
  };
  std::vector<Pair> pairs;
  // Ops that update a parameter, with the gradient that they read.
  std::vector<Pair> updates;
};

// InvalidArgument for an update without a gradient. O(operands).
absl::StatusOr<Training> FindTraining(const Document& document);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_TRAINING_H_
