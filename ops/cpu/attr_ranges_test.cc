// Kernels refuse no value of an attribute that inference takes: what the verifier lets pass, runs.
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/op_vectors_cases.h"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/cpu/testing.h"
#include "ops/schema/infer.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// Values of the type of `like` that most attributes do not have.
struct Strange {
  std::vector<AttrValue> operator()(int32_t) const { return {-3, -2, 0, 7, 1 << 21}; }
  std::vector<AttrValue> operator()(int64_t) const {
    return {int64_t{-3}, int64_t{-2}, int64_t{0}, int64_t{7}, int64_t{1} << 40};
  }
  std::vector<AttrValue> operator()(float) const {
    return {-0.5f, 0.0f, 1.5f, -1e30f, 1e30f, std::nanf("")};
  }
  std::vector<AttrValue> operator()(double) const { return {-0.5, 0.0, 1.5, std::nan("")}; }
  std::vector<AttrValue> operator()(bool value) const { return {!value}; }
  std::vector<AttrValue> operator()(const std::string&) const {
    return {std::string(), std::string("strange")};
  }
  template <typename T>
  std::vector<AttrValue> operator()(const std::vector<T>& values) const {
    std::vector<AttrValue> lists = {std::vector<T>()};
    for (int number : {-3, 0, 7}) {
      std::vector<T> list(values);
      for (size_t i = 0; i < list.size(); ++i) {
        if constexpr (std::is_arithmetic_v<T>) list[i] = static_cast<T>(number);
      }
      lists.push_back(list);
      if constexpr (std::is_arithmetic_v<T>) list.push_back(static_cast<T>(number));
      lists.push_back(list);
    }
    return lists;
  }
  std::vector<AttrValue> operator()(BlockRef) const { return {}; }
};

// Slots and types of arguments, as inference takes them.
void Describe(const SlotPointers& slots, InferContext::Slots* names, InferContext::Types* types) {
  for (const auto& [name, tensors] : slots) {
    names->push_back({name, types->size(), tensors.size()});
    for (const Tensor* tensor : tensors) {
      types->emplace_back();
      if (tensor == nullptr) continue;
      const bool is_rows = tensor->is_rows();
      types->back() = TensorType{tensor->dtype(), is_rows ? tensor->TallDims() : tensor->dims()};
      if (is_rows) types->back()->kind = TensorType::Kind::kSelectedRows;
    }
  }
}

// What inference takes and a kernel of the case does not; empty: nothing.
std::string RefusedByKernelAlone(const Json& c, const AttrValues& attrs) {
  const std::string op = c["op"];
  const OpSchema& schema = *FindOpSchema(op);
  Variables inputs(c["inputs"]), outputs(c["outputs"]);
  const SlotPointers in = inputs.Pointers(), out = outputs.Pointers();
  InferContext::Slots in_slots, out_slots;
  InferContext::Types in_types, out_types;
  Describe(in, &in_slots, &in_types);
  Describe(out, &out_slots, &out_types);
  const OpAttrs values = OpAttrs::Make(schema, attrs);
  InferContext context(schema, values, in_slots, in_types, out_slots, out_types.size());
  if (!RunInference(context).ok()) return "";
  // What inputs say instead is known in the step alone.
  const auto is_overriding = [&](const SlotSchema& slot) {
    return !slot.attrs.empty() && context.HasInput(slot.name);
  };
  if (absl::c_any_of(schema.inputs(), is_overriding)) return "";
  for (const auto& type : context.TakeOutputs()) {
    if (type.has_value() && NumElements(type->dims) > 100'000) return "";
  }
  absl::StatusOr<OpRunner> runner = OpRunner::Make(op, in, attrs, out);
  const absl::Status status = runner.ok() ? runner->Run() : runner.status();
  const bool refused =
      absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "attribute");
  return refused ? absl::StrCat(op, ": ", status.message()) : "";
}

TEST(AttrRanges, KernelsTakeWhatInferenceTakes) {
  std::vector<Json> cases = ReadArchivedVectors("ops.jsonl");
  for (const char* file : {"programs.jsonl", "layers.jsonl", "math.jsonl"}) {
    for (Json& c : ReadVectors(file)) cases.push_back(std::move(c));
  }
  std::set<std::string> refused;
  size_t tried = 0;
  for (const Json& c : cases) {
    const std::string op = c["op"];
    // Its equation is that of the op before it. Paddle declares InnerCache without its type.
    if (op == "einsum_grad") continue;
    const AttrValues attrs = AttrsFromJson(op, c["attrs"]);
    for (size_t a = 0; a < attrs.size(); ++a) {
      for (const AttrValue& value : std::visit(Strange(), attrs[a].second)) {
        AttrValues changed = attrs;
        changed[a].second = value;
        const std::string message = RefusedByKernelAlone(c, changed);
        if (!message.empty()) refused.insert(absl::StrCat(message, " [", attrs[a].first, "]"));
        ++tried;
      }
    }
  }
  for (const std::string& message : refused) ADD_FAILURE() << message;
  EXPECT_GT(tried, 1000u);
}

}  // namespace
}  // namespace weft::testing
