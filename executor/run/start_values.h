// Compares the values with which ranks begin.
#ifndef WEFT_EXECUTOR_RUN_START_VALUES_H_
#define WEFT_EXECUTOR_RUN_START_VALUES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"
#include "ops/tensor.h"

namespace weft {

// Equal for equal dimensions and bits, in all processes. `tensor` is in host memory.
uint64_t StartHash(const Tensor& tensor);

class StartValues {
 public:
  struct Variable {
    std::string name;
    // The ranks that should begin with equal values, ascending; null: all.
    const std::vector<int>* ranks = nullptr;
  };

  // `variables`: the same in all processes. `warn` is called in process 0, if at all, with the
  // first rank that begins with another value than the first rank that should have the same.
  // Everything outlives this; `link` may be null.
  StartValues(const World& world, JobLink* link, std::vector<Variable> variables,
              std::function<void(const std::string&)> warn);
  ~StartValues();

  const std::vector<Variable>& variables() const { return variables_; }
  // Adds the hashes of a rank of this process: by variable, 0 for one without a value. Thread-safe.
  void Add(int rank, std::vector<uint64_t> hashes);

 private:
  void Compare(int rank, std::vector<uint64_t> hashes);
  absl::optional<std::string> Difference() const;

  const World world_;
  JobLink* const link_;
  const std::vector<Variable> variables_;
  const std::function<void(const std::string&)> warn_;
  std::mutex mutex_;
  std::map<int, std::vector<uint64_t>> hashes_;  // by rank; of process 0
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_START_VALUES_H_
