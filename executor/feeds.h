// Feeds from a file, step by step.
#ifndef WEFT_EXECUTOR_FEEDS_H_
#define WEFT_EXECUTOR_FEEDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/npz.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// An .npz file with arrays named "<step>/<variable>". Steps count from 0, and every step has the
// same variables. Arrays are read on demand, so the file may be larger than memory.
class FeedFile {
 public:
  // InvalidArgument, naming the file and the array: a malformed name, a step that lacks a variable
  // of another step, no arrays at all.
  static absl::StatusOr<FeedFile> Open(const std::string& path);

  const std::string& path() const { return npz_.path(); }
  // Number of steps in the file, at least 1.
  int64_t num_steps() const { return num_steps_; }
  // The variables fed in every step, sorted.
  const std::vector<std::string>& variables() const { return variables_; }

  // The types of the arrays of a step, in the order of variables(), from their headers alone.
  // Thread-safe.
  absl::StatusOr<std::vector<TensorType>> Types(int64_t step) const;

  // The arrays of a step, for the global batch, by variable. Step s reads step s modulo num_steps()
  // of the file. `step` must not be negative. Thread-safe.
  absl::StatusOr<std::map<std::string, Tensor>> Read(int64_t step) const;

 private:
  std::string ArrayName(int64_t step, absl::string_view variable) const;
  explicit FeedFile(NpzFile npz) : npz_(std::move(npz)) {}

  NpzFile npz_;
  int64_t num_steps_ = 0;
  std::vector<std::string> variables_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_FEEDS_H_
