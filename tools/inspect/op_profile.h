// Measures ops, for plans.
#ifndef WEFT_TOOLS_INSPECT_OP_PROFILE_H_
#define WEFT_TOOLS_INSPECT_OP_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/run/runner.h"

namespace weft {

// The times of ops of the root block, and of what they run, over the steps of rank 0.
class OpProfile {
 public:
  // The first steps allocate and warm caches up.
  static constexpr int kWarmUpSteps = 2;

  void Add(const StepTrace& trace);
  // The profile: medians over steps after the first ones, or over all if there are no others.
  std::string Json() const;

 private:
  void AddOp(const Plan::PlanOp& op, int64_t step, double seconds);

  std::vector<std::string> names_;                      // in the order in which ops ran first
  std::map<std::string, std::vector<double>> seconds_;  // by name, one per step
  std::map<std::string, int64_t> step_of_;              // by name: of the last time
};

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_OP_PROFILE_H_
