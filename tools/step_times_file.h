// Files with the times of ops and collectives, for plans.
#ifndef WEFT_TOOLS_STEP_TIMES_FILE_H_
#define WEFT_TOOLS_STEP_TIMES_FILE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/runner.h"
#include "proto/program.h"
#include "transpiler/buckets/collective_time.h"

namespace weft {

// {"points": [{"bytes": 4096, "seconds": 1.2e-05}, ...]}, as `weft comm_bench` prints it, or
// {"latency_s": 0.001, "bytes_per_s": 4e9}, the alpha-beta model. Other keys are ignored.
// InvalidArgument with what is wrong.
absl::StatusOr<CollectiveTime> ParseCollectiveTable(absl::string_view json);

// {"ops": [{"op": "op 17 (mul)", "seconds": 1e-05}, ...]}, as `weft run --profile` writes it: the
// times of the ops of the root block of this program, by position; 0 for those that the file does
// not have. InvalidArgument for an op that the program does not have.
absl::StatusOr<std::vector<double>> ParseProfile(absl::string_view json, const Program& program);

// The times of ops over the steps of rank 0.
class OpProfile {
 public:
  // The first steps allocate and warm caches up.
  static constexpr int kWarmUpSteps = 2;

  void Add(const StepTrace& trace);
  // The profile: medians over steps after the first ones, or over all if there are no others.
  std::string Json() const;

 private:
  std::vector<std::string> names_;                      // in the order in which ops ran first
  std::map<std::string, std::vector<double>> seconds_;  // by name, one per step
  std::map<std::string, int64_t> step_of_;              // by name: of the last time
};

}  // namespace weft

#endif  // WEFT_TOOLS_STEP_TIMES_FILE_H_
