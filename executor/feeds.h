// What the variables of a program are fed with, step by step, from a file.
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

// An .npz file with arrays named "<step>/<variable>", steps counted from 0, every step holding the
// same variables. Arrays are read when asked for, so the file may be larger than memory.
class FeedFile {
 public:
  // InvalidArgument, naming the file and the array: a name of another form, a step that lacks a
  // variable which another step has, no arrays at all.
  static absl::StatusOr<FeedFile> Open(const std::string& path);

  const std::string& path() const { return npz_.path(); }
  // Steps that the file holds, at least 1.
  int64_t num_steps() const { return num_steps_; }
  // The variables fed in every step, sorted.
  const std::vector<std::string>& variables() const { return variables_; }

  // What the arrays of a step are, in the order of variables(), from their headers alone.
  // Thread-safe.
  absl::StatusOr<std::vector<TensorType>> Types(int64_t step) const;

  // The arrays of a step, for the whole batch, by variable. Steps beyond the file start over: step
  // s is that of the file numbered s modulo num_steps(). `step` is not negative. Thread-safe.
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
