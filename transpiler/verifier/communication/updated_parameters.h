// Which parameter an update is of.
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_UPDATED_PARAMETERS_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_UPDATED_PARAMETERS_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/program.h"

namespace weft {

// An optimizer may update another variable than the parameter:
//
// - its mirror on the other device:
//     ParamOut=[w@CPU] = sgd(...); Out=[w] = memcpy_h2d(X=[w@CPU])
// - what the parameter changes by, perhaps by way of other variables:
//     ParamOut=[d] = sgd(...); Out=[w] = elementwise_add(X=[w], Y=[d])
//     ParamOut=[d] = adam(...); Out=[r] = elementwise_sub(X=[r], Y=[d]);
//     Out=[w] = elementwise_sub(X=[w], Y=[r])
// - one of these in another dtype:
//     ParamOut=[d] = sgd(...); Out=[s] = cast(X=[d]); Out=[w] = elementwise_add(X=[w], Y=[s])
//
// or several, one after the other.
class UpdatedParameters {
 public:
  // O(arguments).
  explicit UpdatedParameters(const Program& program);

  // The parameter that an update of `var` changes, of several the nearest; `var` if it changes no
  // other. O(ops that pass the update on).
  VarId Of(VarId var) const;

 private:
  const Program& program_;
  // From variables that are not persistable to those that ops copy or cast them to, add them to, or
  // subtract them from, in op order.
  absl::flat_hash_map<VarId, std::vector<VarId>> next_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_UPDATED_PARAMETERS_H_
