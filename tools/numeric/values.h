// Generated values of parameters and data: small numbers whose sums are exact.
#ifndef WEFT_TOOLS_NUMERIC_VALUES_H_
#define WEFT_TOOLS_NUMERIC_VALUES_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// Well-mixed bits, deterministic on all machines (splitmix64).
uint64_t MixBits(uint64_t x);
uint64_t HashOfName(absl::string_view name);
// -2, -1, 1 or 2: no zeros, which would hide their cofactors.
double SmallNumber(uint64_t random);
// Used if no program specifies one.
inline constexpr double kDefaultLearningRate = 1.0 / 1024;
// The power of two nearest to a learning rate, because its size depends on the optimizer.
double RoundedRate(double rate);

// A tensor whose element i is value(i), which must be representable in its type. Unimplemented for
// types without generated values.
absl::StatusOr<Tensor> MakeTensor(absl::string_view name, const TensorType& type,
                                  const std::function<double(int64_t)>& value);
// Small numbers, divided so that a product with them has about the size of the other factor.
absl::StatusOr<Tensor> MakeParameter(absl::string_view name, const TensorType& type);

// The number of elements of all parameters, states and data of a step.
inline constexpr int64_t kMaxNumericElements = int64_t{1} << 28;

// Counts generated elements.
class ElementBudget {
 public:
  // ResourceExhausted beyond kMaxNumericElements.
  absl::Status Take(absl::string_view variable, const Dims& dims);

 private:
  int64_t taken_ = 0;
};

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_VALUES_H_
