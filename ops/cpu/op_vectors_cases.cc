#include "ops/cpu/op_vectors_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// Of the largest element: a roundoff of fp32 for each of 128 terms of a sum; a function counts
// as 8. The few sums that are longer round up and down.
constexpr double kTolerance = 128 * 0x1p-24;

// What shows that an output must be rows.
Tensor NoRows() {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {1, 1}, 0);
  return tensor;
}

template <typename T>
void ExpectCloseElements(const Tensor& found, const Tensor& expected) {
  const std::vector<T> f = Values<T>(found), e = Values<T>(expected);
  double largest = 0;
  for (T v : e) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(double{v}));
  }
  for (size_t i = 0; i < e.size(); ++i) {
    if (f[i] == e[i] || (std::isnan(f[i]) && std::isnan(e[i]))) continue;
    EXPECT_NEAR(f[i], e[i], kTolerance * largest) << "element " << i;
  }
}

// Equal type and dims; fp32 and fp64 elements equal within kTolerance, others equal.
void ExpectClose(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(DTypeName(found.dtype()), DTypeName(expected.dtype()));
  ASSERT_EQ(DimsToString(found.dims()), DimsToString(expected.dims()));
  EXPECT_EQ(found.height(), expected.height());
  EXPECT_EQ(found.rows(), expected.rows());
  if (expected.dtype() == DType::kFloat32) {
    ExpectCloseElements<float>(found, expected);
  } else if (expected.dtype() == DType::kFloat64) {
    ExpectCloseElements<double>(found, expected);
  } else if (expected.bytes() > 0) {
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0);
  }
}

// Whether the vectors have only Paddle's result, which is wrong: its max pooling ignores attribute
// `adaptive`.
bool IsPaddlesOnly(const std::string& id) {
  return absl::StartsWith(id, "pool2d/05") || absl::StartsWith(id, "pool2d/06");
}

}  // namespace

void ExpectCloseSlots(const SlotPointers& found, const SlotPointers& expected) {
  for (size_t s = 0; s < expected.size(); ++s) {
    ASSERT_EQ(found[s].first, expected[s].first);
    for (size_t i = 0; i < expected[s].second.size(); ++i) {
      if (expected[s].second[i] == nullptr) continue;
      SCOPED_TRACE(expected[s].first);
      // Its parts are separate outputs; the padding between them depends on the device.
      if (expected[s].first == "FusedOutput") continue;
      ExpectClose(*found[s].second[i], *expected[s].second[i]);
    }
  }
}

absl::Status RunCase(const Json& c, const std::vector<Place>& in_place, const KernelTable& kernels,
                     const std::string& expected_slots) {
  const std::string op = c["op"];
  if (FindOpSchema(op) == nullptr) return absl::NotFoundError(absl::StrCat(op, ": no schema"));
  Variables inputs(c["inputs"]), expected(c[expected_slots]), found(c[expected_slots]);
  SlotPointers input_pointers = inputs.Pointers(), output_pointers = found.Pointers();
  for (auto& slot : input_pointers) {
    EXPECT_NE(FindOpSchema(op)->FindInput(slot.first), nullptr) << "no input " << slot.first;
  }
  for (auto& slot : output_pointers) {
    EXPECT_NE(FindOpSchema(op)->FindOutput(slot.first), nullptr) << "no output " << slot.first;
    for (size_t i = 0; i < slot.second.size(); ++i) {
      Tensor*& tensor = slot.second[i];
      if (tensor == nullptr) continue;
      *tensor = tensor->is_rows() ? NoRows() : Tensor();
      for (const Place& place : in_place) {
        if (place.output != slot.first || place.i != i) continue;
        for (auto& input : input_pointers) {
          if (input.first == place.input) tensor = input.second[i];
        }
      }
    }
  }
  auto bound =
      OpRunner::Make(op, input_pointers, AttrsFromJson(op, c["attrs"]), output_pointers,
                     expected_slots == "paddle_cpu_quirks" || IsPaddlesOnly(c["id"]), kernels);
  WEFT_RETURN_IF_ERROR(bound.status());
  bound->OverwriteUnreadInputs();
  WEFT_RETURN_IF_ERROR(bound->Run());
  ExpectCloseSlots(output_pointers, expected.Pointers());
  return absl::OkStatus();
}

std::vector<Place> PossiblePlaces(const Json& c) {
  std::vector<Place> places;
  for (const auto& out : c["outputs"].items()) {
    for (const auto& in : c["inputs"].items()) {
      for (size_t i = 0; i < std::min(out.value().size(), in.value().size()); ++i) {
        const Json &a = out.value()[i], &b = in.value()[i];
        if (a.is_null() || b.is_null() || a.contains("rows") || b.contains("rows")) continue;
        if (a["dtype"] != b["dtype"] || a["shape"] != b["shape"]) continue;
        places.push_back({out.key(), in.key(), i});
      }
    }
  }
  return places;
}

absl::Status RunOptimizerCase(const Json& c, const KernelTable& kernels, bool paddle_cpu_quirks) {
  std::map<std::string, Tensor> states, constants;
  for (const auto& state : c["init"].items()) states[state.key()] = TensorFromJson(state.value());
  for (const auto& input : c["inputs"].items()) {
    constants[input.key()] = TensorFromJson(input.value());
  }
  // The first gradient decides between the kernel for tensors and the kernel for rows.
  Tensor grad = TensorFromJson(c["steps"][0]["Grad"]), learning_rate;
  SlotPointers inputs = {{"Grad", {&grad}}, {"LearningRate", {&learning_rate}}}, outputs;
  for (auto& state : states) inputs.push_back({state.first, {&state.second}});
  for (const auto& output : c["in_place"].items()) {
    outputs.push_back({output.key(), {&states.at(output.value())}});
  }
  for (auto& input : constants) inputs.push_back({input.first, {&input.second}});
  const std::string op = c["op"];
  WEFT_ASSIGN_OR_RETURN(OpRunner bound, OpRunner::Make(op, inputs, AttrsFromJson(op, c["attrs"]),
                                                       outputs, paddle_cpu_quirks, kernels));
  for (size_t i = 0; i < c["steps"].size(); ++i) {
    const Json& step = c["steps"][i];
    grad = TensorFromJson(step["Grad"]);
    learning_rate = TensorFromJson(step["LearningRate"]);
    WEFT_RETURN_IF_ERROR(bound.Run());
    const Json& after = paddle_cpu_quirks ? c["paddle_cpu_quirks"][i] : step["after"];
    for (const auto& state : after.items()) {
      SCOPED_TRACE(state.key());
      ExpectClose(states.at(state.key()), TensorFromJson(state.value()));
    }
  }
  return absl::OkStatus();
}

Json InDoublePrecision(Json c) {
  for (const char* slots : {"inputs", "outputs", "paddle_cpu_quirks"}) {
    if (!c.contains(slots)) continue;
    for (auto& slot : c[slots].items()) {
      for (Json& tensor : slot.value()) {
        if (tensor.is_null() || tensor["dtype"] != "fp32") continue;
        if (absl::StartsWith(slot.key(), "CustomDist")) continue;
        std::string hex;
        for (float value : Values<float>(TensorFromJson(tensor))) {
          const double wide = value;
          std::string bytes(reinterpret_cast<const char*>(&wide), sizeof(wide));
          std::reverse(bytes.begin(), bytes.end());
          hex += absl::BytesToHexString(bytes);
        }
        tensor["dtype"] = "fp64";
        tensor["hex"] = hex;
      }
    }
  }
  return c;
}

}  // namespace weft::testing
