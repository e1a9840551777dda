#include "tests/properties/random_pool.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "tests/properties/random_gradients.h"

namespace weft::testing {

using Ints = std::vector<int32_t>;

int ValuePool::Add(RandomValue value) {
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

void ValuePool::Withdraw(int value) {
  pool_.erase(std::remove(pool_.begin(), pool_.end(), value), pool_.end());
}

std::vector<int> ValuePool::Candidates(ArgumentClass of, int first) const {
  std::vector<int> candidates;
  for (int id : pool_) {
    if (IsIn(values_[id], of)) candidates.push_back(id);
  }
  if (of != ArgumentClass::kStatistic && of != ArgumentClass::kCount) {
    std::reverse(candidates.begin(), candidates.end());
  }
  if (!candidates.empty()) {
    std::rotate(candidates.begin(), candidates.begin() + first % candidates.size(),
                candidates.end());
  }
  return candidates;
}

int ValuePool::Pick(ArgumentClass of, const std::vector<int>& choices, size_t n) const {
  const std::vector<int> candidates = Candidates(of, n < choices.size() ? choices[n] : 0);
  return candidates.empty() ? -1 : candidates[0];
}

int ValuePool::Find(absl::string_view name) const {
  for (size_t i = values_.size(); i-- > 0;) {
    if (values_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool ValuePool::Infer(int count, int state, bool is_in_place, ForwardOp* made) {
  InferContext::Slots out;
  size_t num_outputs = 0;
  for (const SlotSchema& slot : FindOpSchema(made->type)->outputs()) {
    if (slot.unwritten || slot.name == "ReserveSpace") continue;
    const size_t in_slot = slot.duplicable ? count : 1;
    out.push_back({slot.name, num_outputs, in_slot});
    num_outputs += in_slot;
  }
  std::array<InferContext::Types, 3> types;
  if (!InferTypes(*made, out, num_outputs, &types)) return false;
  for (int t = 0; state >= 0 && t < 3; ++t) {
    if (types[t][0] != values_[state].types[t]) return false;
  }
  made->outputs.clear();
  is_in_place_ = is_in_place;
  const bool is_differentiable = !Differentiate(values_, *made).empty();
  for (const InferContext::Slot& slot : out) {
    std::vector<int> ids;
    for (size_t at = slot.first; at < slot.first + slot.count; ++at) {
      const ThreeTypes of = {*types[0][at], *types[1][at], *types[2][at]};
      ids.push_back(state >= 0 ? state : Output(*made, slot.name, of, is_differentiable));
    }
    made->outputs.push_back({std::string(slot.name), std::move(ids)});
  }
  is_in_place_ = false;
  return true;
}

int ValuePool::Make(const std::string& type, ValueSlots inputs, AttrValues attrs) {
  ForwardOp made{type, std::move(inputs), {}, std::move(attrs)};
  if (!Infer(1, -1, /*is_in_place=*/false, &made)) return -1;
  ops_.push_back(made);
  for (const auto& [slot, ids] : made.outputs) {
    if (slot != "Softmax" && slot != "XShape") return ids[0];
  }
  return -1;
}

int ValuePool::MakeInBlock(const std::string& type, ValueSlots inputs, AttrValues attrs,
                           std::vector<ForwardOp>* block) {
  const std::vector<int> outside = pool_;
  const int made = Make(type, std::move(inputs), std::move(attrs));
  pool_ = outside;
  if (made < 0) return -1;
  block->push_back(std::move(ops_.back()));
  ops_.pop_back();
  return made;
}

int ValuePool::Variable(int value) {
  const int id = Add({absl::StrCat("variable_", values_.size()), values_[value].types});
  ops_.push_back({"assign", {{"X", {value}}}, {{"Out", {id}}}, {}});
  return id;
}

int ValuePool::Scalar(int value, const std::string& reduce) {
  return Make(reduce, {{"X", {value}}}, {{"reduce_all", true}, {"dim", Ints{0}}});
}

int ValuePool::AsVector1(int value) {
  return Make("reshape", {{"X", {value}}}, {{"shape", Ints{1}}});
}

// The types of its outputs; false if inference does not take its inputs.
bool ValuePool::InferTypes(const ForwardOp& made, const InferContext::Slots& out,
                           size_t num_outputs, std::array<InferContext::Types, 3>* types) const {
  const OpSchema& schema = *FindOpSchema(made.type);
  const OpAttrs attrs = OpAttrs::Make(schema, made.attrs);
  for (int t = 0; t < 3; ++t) {
    InferContext::Slots in;
    InferContext::Types ins;
    for (const auto& [slot, ids] : made.inputs) {
      in.push_back({slot, ins.size(), ids.size()});
      for (int id : ids) ins.emplace_back(values_[id].types[t]);
    }
    InferContext context(schema, attrs, in, std::move(ins), out, num_outputs);
    if (!RunInference(context).ok()) return false;
    (*types)[t] = context.TakeOutputs();
    for (absl::optional<TensorType>& type : (*types)[t]) {
      if (!type.has_value()) type = UnknownSizes(made, t);
    }
  }
  return true;
}

// Of an op that reads sizes from a tensor.
TensorType ValuePool::UnknownSizes(const ForwardOp& made, int t) const {
  for (const char* slot : {"Shape", "ShapeTensor"}) {
    for (int id : SlotOf(made.inputs, slot)) {
      const int64_t rank = NumElements(values_[id].types[t].dims);
      return {kRandomFloat, Dims(std::max<int64_t>(rank, 1), -1)};
    }
  }
  for (const auto& [name, value] : made.attrs) {
    const auto* dims = name == "shape" ? std::get_if<std::vector<int64_t>>(&value) : nullptr;
    if (dims != nullptr) return {kRandomFloat, Dims(dims->begin(), dims->end())};
  }
  for (int id : SlotOf(made.inputs, "Input")) {
    return {kRandomFloat, Dims(values_[id].types[t].dims.size(), -1)};
  }
  return {kRandomFloat, {}};
}

int ValuePool::Output(const ForwardOp& made, absl::string_view slot, const ThreeTypes& types,
                      bool is_differentiable) {
  // MeanOut is Mean.
  absl::string_view in = slot;
  if (absl::ConsumeSuffix(&in, "Out") && !in.empty()) {
    for (const auto& [name, ids] : made.inputs) {
      if (name == in) return ids[0];
    }
  }
  const bool is_differentiated =
      is_differentiable && types[0].dtype == kRandomFloat && HasGradient(made.type, slot);
  const bool is_size = made.type == "shape" || made.type == "size" || made.type == "slice";
  const int id = Add({NameOfOutput(made, slot, types), types, RandomValue::Kind::kMade,
                      is_differentiated, is_size && types[0].dtype != kRandomFloat});
  if (slot != "XShape") pool_.push_back(id);
  return id;
}

// In place: that of an argument, whose value is lost.
std::string ValuePool::NameOfOutput(const ForwardOp& made, absl::string_view slot,
                                    const ThreeTypes& types) {
  if (std::exchange(is_in_place_, false)) {
    for (const auto& [name, ids] : made.inputs) {
      for (int id : ids) {
        const RandomValue::Kind kind = values_[id].kind;
        const bool may_be_lost =
            kind == RandomValue::Kind::kMade || kind == RandomValue::Kind::kFeed;
        if (!may_be_lost || values_[id].types != types) continue;
        pool_.erase(std::remove(pool_.begin(), pool_.end(), id), pool_.end());
        return values_[id].name;
      }
    }
  }
  return absl::StrCat(made.type, "_", values_.size(), ".", slot);
}

}  // namespace weft::testing
