#include "tests/support/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "ops/float16.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {
namespace {

// Bounds above this part of the first loss are of no use.
constexpr double kMostOfFirstLoss = 1e-3;

// The number, moved by a factor that its bits and the run decide (the mixer of SplitMix64).
double Moved(float number, int run, double by = kMovedBy) {
  uint32_t digits;
  std::memcpy(&digits, &number, sizeof(digits));
  const bool is_exact = (digits & 0xfff) == 0;
  if (is_exact) return number;
  uint64_t bits = (static_cast<uint64_t>(run) << 32 | digits) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  const double draw = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;  // of [-1, 1]
  return number * (1 + by * draw);
}

// Floating-point attributes.
void MoveConstants(const OpSchema& schema, int run, OpAttrs* attrs) {
  for (const AttrSchema& attr : schema.attrs()) {
    const bool is_float = std::holds_alternative<float>(attr.default_value);
    if (!is_float && !std::holds_alternative<double>(attr.default_value)) continue;
    const double moved = Moved(static_cast<float>(attrs->Float(attr.name)), run);
    if (is_float) {
      attrs->Set(attr.name, static_cast<float>(moved));
    } else {
      attrs->Set(attr.name, moved);
    }
  }
}

KernelFactory Moved(const KernelFactory& factory, int run) {
  return [&factory, run](const KernelSpec& spec) {
    KernelSpec moved = spec;
    MoveConstants(*spec.schema, run, &moved.attrs);
    return factory(moved);
  };
}

const KernelTable& MovedKernels(int run) {
  static const auto* const tables = [] {
    auto* const made = new std::vector<KernelTable>(kMovedRuns);
    for (int run = 0; run < kMovedRuns; ++run) {
      for (const std::string& type : CpuKernels().op_types()) {
        (*made)[run].Add(type, Moved(*CpuKernels().Find(type), run));
      }
      for (const std::string& type : CpuKernels().op_types_for_rows()) {
        (*made)[run].AddForRows(type, Moved(*CpuKernels().FindForRows(type), run));
      }
    }
    return made;
  }();
  return (*tables)[run];
}

template <typename T>
std::vector<double> ElementsOf(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

}  // namespace

TrainingInputs Moved(const TrainingInputs& inputs, int run) {
  const double by = inputs.moved_by;
  TrainingInputs moved{{}, inputs.feeds, &MovedKernels(run), by};
  for (const auto& [name, param] : inputs.params) {
    moved.params[name] = MovedByRounding(param, run, by);
  }
  if (inputs.feeds.read == nullptr) return moved;
  moved.feeds.read = [read = inputs.feeds.read, run,
                      by](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, read(step));
    for (Tensor& tensor : batch) tensor = MovedByRounding(tensor, run, by);
    return batch;
  };
  return moved;
}

std::vector<double> AsDoubles(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat16:
      return ElementsOf<Float16>(tensor);
    case DType::kFloat32:
      return ElementsOf<float>(tensor);
    case DType::kFloat64:
      return ElementsOf<double>(tensor);
    case DType::kInt64:
      return ElementsOf<int64_t>(tensor);
    case DType::kInt32:
      return ElementsOf<int32_t>(tensor);
    case DType::kUint8:
      return ElementsOf<uint8_t>(tensor);
    case DType::kBool:
      return ElementsOf<bool>(tensor);
    default:
      throw std::invalid_argument(absl::StrCat("no numbers of ", DTypeName(tensor.dtype())));
  }
}

std::vector<double> RoundingBoundsOf(const Tensor& found, const std::vector<Tensor>& moved) {
  const std::vector<double> values = AsDoubles(found);
  std::vector<double> bounds(values.size());
  double squares = 0;
  for (const Tensor& tensor : moved) {
    const std::vector<double> others = AsDoubles(tensor);
    for (size_t i = 0; i < values.size(); ++i) {
      const double move = std::abs(others[i] - values[i]);
      if (!(move > 0)) continue;  // equal, or not a number
      bounds[i] = std::max(bounds[i], move);
      squares += move * move;
    }
  }
  const double numbers = static_cast<double>(moved.size() * values.size());
  const double mean = std::sqrt(squares / std::max(numbers, 1.0));
  const double others = mean * std::max(1.0, std::sqrt(2 * std::log(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    bounds[i] = kRoundingFactor * (bounds[i] + others + kMovedBy * std::abs(values[i]));
  }
  return bounds;
}

Tensor MovedByRounding(const Tensor& tensor, int run, double by) {
  Tensor moved = tensor.Clone();
  if (tensor.dtype() != DType::kFloat32) return moved;
  for (int64_t i = 0; i < moved.size(); ++i) {
    float& number = moved.data<float>()[i];
    number = static_cast<float>(Moved(number, run, by));
  }
  return moved;
}

absl::StatusOr<RoundingBounds> RoundingBounds::Measure(const TrainingInputs& inputs,
                                                       const TrainingRun& train) {
  WEFT_ASSIGN_OR_RETURN(TrainingResults results, train(inputs));
  return Measure(inputs, std::move(results), train);
}

absl::StatusOr<RoundingBounds> RoundingBounds::Measure(const TrainingInputs& inputs,
                                                       TrainingResults results,
                                                       const TrainingRun& train) {
  RoundingBounds bounds;
  bounds.results_ = std::move(results);
  const std::vector<std::vector<double>>& losses = bounds.results_.losses;
  std::vector<TrainingResults> moved(kMovedRuns);
  for (int run = 0; run < kMovedRuns; ++run) {
    WEFT_ASSIGN_OR_RETURN(moved[run], train(Moved(inputs, run)));
    for (const auto& [name, tensor] : moved[run].state) {
      bounds.moved_state_[name].push_back(tensor);
    }
  }
  for (size_t series = 0; series < losses.size(); ++series) {
    std::vector<double>& allowed = bounds.losses_.emplace_back();
    double most = 0;
    for (size_t step = 0; step < losses[series].size(); ++step) {
      const double loss = losses[series][step];
      most = std::max(most, kMovedBy * std::abs(loss));
      for (const TrainingResults& run : moved) {
        most = std::max(most, std::abs(run.losses[series][step] - loss));
      }
      allowed.push_back(kRoundingFactor * most);
    }
    if (!allowed.empty() && !(allowed[0] <= kMostOfFirstLoss * std::abs(losses[series][0]))) {
      return absl::FailedPreconditionError(absl::StrCat("loss series ", series,
                                                        ": rounding may move the first loss, ",
                                                        losses[series][0], ", by ", allowed[0]));
    }
  }
  return bounds;
}

std::vector<double> RoundingBounds::OfState(const std::string& name) const {
  return RoundingBoundsOf(results_.state.at(name), moved_state_.at(name));
}

void RoundingBounds::ExpectLosses(size_t series, const std::vector<double>& found,
                                  const std::vector<double>& expected) const {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(found[step], expected[step], OfLoss(series, step)) << "step " << step;
  }
}

void RoundingBounds::ExpectState(const std::string& name, const Tensor& found,
                                 const Tensor& expected) const {
  ASSERT_EQ(found.dtype(), expected.dtype()) << name;
  ASSERT_GE(found.size(), expected.size()) << name;
  const std::vector<double> values = AsDoubles(found), wanted = AsDoubles(expected);
  const std::vector<double> allowed = OfState(name);
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(values[i], wanted[i], allowed[i]) << name << ", element " << i;
  }
}

}  // namespace weft::testing
