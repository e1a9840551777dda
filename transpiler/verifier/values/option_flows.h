// The program as options of transpile would make it, for messages that name them.
#ifndef WEFT_TRANSPILER_VERIFIER_VALUES_OPTION_FLOWS_H_
#define WEFT_TRANSPILER_VERIFIER_VALUES_OPTION_FLOWS_H_

#include <functional>
#include <utility>

#include "absl/types/optional.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/program.h"

namespace weft {

// Each flow is found when it is asked for, and kept: O(arguments) for each of at most 68 walks.
class OptionFlows {
 public:
  // `options`: how BatchFlow follows the program, asked for when needed. `main` must outlive it.
  OptionFlows(const Program& main, std::function<BatchFlowOptions()> options)
      : main_(main), options_(std::move(options)) {}

  // Null: the option would change nothing.
  const BatchFlow* WithExactLoss();
  const BatchFlow* WithStatistics();

 private:
  using Find = BatchEdits (*)(const Program&, BatchFlowOptions);
  struct Flow {
    bool is_found = false;
    absl::optional<BatchFlow> flow;
  };
  const BatchFlow* With(Find find, Flow* flow) const;

  const Program& main_;
  const std::function<BatchFlowOptions()> options_;
  Flow exact_loss_, statistics_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_VALUES_OPTION_FLOWS_H_
