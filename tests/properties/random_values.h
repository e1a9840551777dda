// Values that ops of random programs (tests/properties/random_program.h) work on: feeds, states,
// and what ops make of them.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_VALUES_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_VALUES_H_

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "tests/properties/random_ops.h"

namespace weft::testing {

inline constexpr DType kRandomFloat = DType::kFloat64;

// The type of a value as it is declared, as one device has it, and as a rank has it.
inline constexpr int kDeclared = 0, kWhole = 1, kPart = 2;
using ThreeTypes = std::array<TensorType, 3>;

struct RandomValue {
  // kInner: a state of inner blocks.
  enum class Kind { kFeed, kParam, kState, kStatistic, kCount, kInner, kMade };
  std::string name;  // of several values, if ops overwrite them in place
  ThreeTypes types;
  Kind kind = Kind::kMade;
  bool needs_gradient = false;
  bool is_size = false;
};

// Whether an argument of the class may be the value.
bool IsIn(const RandomValue& value, ArgumentClass of);

// Arguments by slot: indices of values.
using ValueSlots = std::vector<std::pair<std::string, std::vector<int>>>;
// Empty if there is no such slot.
std::vector<int> SlotOf(const ValueSlots& slots, absl::string_view name);

using AttrValues = std::vector<std::pair<std::string, AttrValue>>;

struct ForwardOp {
  std::string type;
  ValueSlots inputs, outputs;
  AttrValues attrs;
  std::vector<ForwardOp> block = {};
  // None: those of the op.
  absl::optional<AttrValues> gradient_attrs = {};
};

// The type of an op that hands out its input; its output is a copy of that.
inline constexpr char kFetch[] = "fetch";

struct RandomFeed {
  std::string name;
  DType dtype;
  Dims dims;                 // -1: the batch
  absl::optional<int> axis;  // none: whole
  int below = 0;             // of integers; of floating-point numbers, 1: from 0 to 1
};
absl::Span<const RandomFeed> RandomFeeds();

struct RandomState {
  const char* name;
  DType dtype;
  Dims dims;
  RandomValue::Kind kind;
  float start = 0;  // parameters start at random
};
absl::Span<const RandomState> RandomStates();

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_VALUES_H_
