// Keeps the buffers of a startup program and their parts equal where they do not share memory.
#ifndef WEFT_EXECUTOR_PLAN_STARTUP_BUFFERS_H_
#define WEFT_EXECUTOR_PLAN_STARTUP_BUFFERS_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/analysis/core/startup_buffers.h"
#include "ops/memory.h"
#include "ops/tensor.h"

namespace weft {

// The tensor of a variable; nullptr: there is none.
using FindTensor = std::function<Tensor*(const std::string&)>;

// Copies the values of the parts into the buffer, or, `from_buffer`, back. Does nothing for parts
// that lie in the buffer or have no value. FailedPrecondition, naming the variable: another number
// of elements. O(bytes).
absl::Status CopyStartupBuffer(const StartupBuffer& buffer, bool from_buffer,
                               const FindTensor& find);

// Gives the buffer and its parts one memory. Takes their types from `values`, by name;
// FailedPrecondition if these do not fit. Leaves out parts without a value or a tensor; does
// nothing if the buffer has none.
absl::Status LayOutStartupBuffer(const StartupBuffer& buffer,
                                 const std::function<const Tensor*(const std::string&)>& values,
                                 Memory* memory, const FindTensor& find);

// The parts that `values`, by name, lack, and whose buffer they have: as vectors.
// FailedPrecondition, naming the buffer: another number of elements. O(bytes).
absl::StatusOr<std::map<std::string, Tensor>> PartsOfGivenBuffers(
    absl::Span<const StartupBuffer> buffers, const std::map<std::string, Tensor>& values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_STARTUP_BUFFERS_H_
