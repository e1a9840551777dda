#include "tests/drawn_forward.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "tests/drawn_gradients.h"
#include "tests/drawn_ops.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// Rows of a feed that is whole, but declared as long as a batch.
constexpr int kWholeRows = 3;

class ForwardBuilder {
 public:
  explicit ForwardBuilder(const DrawnSpec& spec) : spec_(spec) {}

  DrawnForward Build() {
    DeclareValues();
    for (const OpChoice& choice : spec_.ops) Draw(choice);
    std::vector<int> losses = {Loss(spec_.loss, spec_.loss_of, spec_.loss_with)};
    if (spec_.second_loss > 0) {
      pool_.erase(std::remove(pool_.begin(), pool_.end(), losses[0]), pool_.end());
      losses.push_back(Loss(spec_.second_loss, spec_.loss_with, spec_.loss_of));
    }
    return {std::move(values_), std::move(made_), std::move(losses), has_chain_, std::move(drawn_)};
  }

 private:
  // --- Values ------------------------------------------------------------------------------------

  int Add(DrawnValue value) {
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
  }

  void DeclareValues() {
    for (const DrawnFeed& feed : DrawnFeeds()) {
      ThreeTypes types;
      for (TensorType& type : types) type = {feed.dtype, feed.dims};
      const int at = feed.axis.value_or(0);
      if (feed.dims[at] == -1) {
        const bool is_split = feed.axis.has_value();
        types[kWhole].dims[at] = is_split ? spec_.nranks * spec_.rows : kWholeRows;
        types[kPart].dims[at] = is_split ? spec_.rows : kWholeRows;
      }
      pool_.push_back(Add({feed.name, types, DrawnValue::Kind::kFeed}));
    }
    for (const DrawnState& state : DrawnStates()) {
      const TensorType type = {state.dtype, state.dims};
      const bool is_parameter = state.kind == DrawnValue::Kind::kParam;
      const int id = Add({state.name, {type, type, type}, state.kind, is_parameter});
      if (state.kind != DrawnValue::Kind::kState) {
        pool_.push_back(id);
        continue;
      }
      // Gradient ops must read what forward ops have read: ops read a copy.
      DrawnValue copy{absl::StrCat(state.name, ".old"), values_[id].types};
      pool_.push_back(Add(copy));
      made_.push_back({"assign", {{"X", {id}}}, {{"Out", {pool_.back()}}}, {}});
    }
  }

  // --- Forward ops -------------------------------------------------------------------------------

  // Values of a class, from number `first` on; those made last come first.
  std::vector<int> Candidates(ArgumentClass of, int first) const {
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

  // Branches, loops and chains are drawn as often as so many ops.
  static constexpr int kOthers = 9;

  void Draw(const OpChoice& choice) {
    const int num_ops = static_cast<int>(DrawnOps().size());
    const int index = choice.op % (num_ops + kOthers);
    if (index >= num_ops) return DrawOther((index - num_ops) % 3, choice.arguments);
    const DrawnOp& op = DrawnOps()[index];
    ForwardOp made{op.type, {}, {}, AttrsOf(op, choice.attrs)};
    if (choice.has_other_gradient) made.gradient_attrs = AttrsOf(op, choice.attrs + 1);
    is_in_place_ = choice.is_in_place;
    const std::vector<std::vector<int>> candidates = CandidatesOf(op, choice.arguments);
    const int state = op.is_state ? StateFor(op, choice.arguments) : -1;
    if (op.is_state && state < 0) return;
    std::vector<int> arguments(candidates.size());
    int attempts = 0;
    const bool fits = Fill(op, candidates, state, 0, &arguments, &attempts, &made);
    is_in_place_ = false;
    if (!fits) return;
    drawn_.push_back(index);
    made_.push_back(std::move(made));
  }

  // For each argument of the op.
  std::vector<std::vector<int>> CandidatesOf(const DrawnOp& op,
                                             const std::vector<int>& choices) const {
    std::vector<std::vector<int>> candidates;
    for (const DrawnSlot& slot : op.inputs) {
      for (int i = 0; i < slot.count; ++i) {
        const size_t n = candidates.size();
        candidates.push_back(Candidates(slot.of, n < choices.size() ? choices[n] : 0));
        // Two statistics, two counts.
        if (slot.of == ArgumentClass::kStatistic || slot.of == ArgumentClass::kCount) {
          const bool is_second = slot.name == "Variance" || slot.name == "StatNeg";
          candidates.back() = {candidates.back()[is_second ? 1 : 0]};
        }
      }
    }
    return candidates;
  }

  // A value of a class; -1: there is none.
  int Pick(ArgumentClass of, const std::vector<int>& choices, size_t n) const {
    const std::vector<int> candidates = Candidates(of, n < choices.size() ? choices[n] : 0);
    return candidates.empty() ? -1 : candidates[0];
  }

  // A variable with a value, which ops of a block overwrite.
  int Variable(int value) {
    const int id = Add({absl::StrCat("variable_", values_.size()), values_[value].types});
    made_.push_back({"assign", {{"X", {value}}}, {{"Out", {id}}}, {}});
    return id;
  }

  // Of one element on every rank and on one device.
  int Scalar(int value, const char* reduce) {
    return Make(reduce, {{"X", {value}}}, {{"reduce_all", true}, {"dim", Ints{0}}});
  }

  void DrawOther(int number, const std::vector<int>& choices) {
    if (number == 0) return DrawBranch(choices);
    if (number == 1) return DrawLoop(choices);
    DrawChain(choices);
  }

  // x, or 2 x if a condition holds.
  void DrawBranch(const std::vector<int>& choices) {
    const int x = Pick(ArgumentClass::kFloat, choices, 0);
    const int of = Pick(ArgumentClass::kFloat, choices, 1);
    const int condition = Make(
        "greater_than", {{"X", {AsVector1(Scalar(of, "reduce_max"))}}, {"Y", {Find("half.old")}}});
    const int out = Variable(x);
    made_.push_back({"conditional_block",
                     {{"Cond", {condition}}, {"Input", {x}}},
                     {{"Out", {out}}},
                     {{"is_scalar_condition", true}},
                     {{"scale", {{"X", {x}}}, {{"Out", {out}}}, {{"scale", 2.0f}}}}});
    pool_.push_back(out);
  }

  // The sum of as many x as another value, at most 3, says.
  void DrawLoop(const std::vector<int>& choices) {
    const int x = Pick(ArgumentClass::kFloat, choices, 0);
    const int of = Pick(ArgumentClass::kFloat, choices, 1);
    const int four =
        Make("scale", {{"X", {AsVector1(Scalar(of, "reduce_sum"))}}}, {{"scale", 4.0f}});
    const int limit = Make("clip", {{"X", {four}}}, {{"min", 0.0f}, {"max", 3.0f}});
    const int zero = Make("fill_constant", {}, {{"shape", std::vector<int64_t>{1}}, {"dtype", 6}});
    const int i = Variable(zero), total = Variable(x);
    const int condition = Make("less_than", {{"X", {i}}, {"Y", {limit}}});
    made_.push_back({"while",
                     {{"X", {x, limit, i, total}}, {"Condition", {condition}}},
                     {{"Out", {i, total, condition}}},
                     {},
                     {{"sum", {{"X", {total, x}}}, {{"Out", {total}}}, {}},
                      {"increment", {{"X", {i}}}, {{"Out", {i}}}, {{"step", 1.0f}}},
                      {"less_than", {{"X", {i}}, {"Y", {limit}}}, {{"Out", {condition}}}, {}}}});
    pool_.insert(pool_.end(), {i, total});
  }

  // A value, and what it was one and two steps before.
  void DrawChain(const std::vector<int>& choices) {
    const int x = AsVector1(Scalar(Pick(ArgumentClass::kFloat, choices, 0), "reduce_mean"));
    const auto assign = [&](int from, int state) {
      made_.push_back({"assign", {{"X", {from}}}, {{"Out", {state}}}, {}});
    };
    assign(Find("second.old"), Find("third"));
    assign(Find("first.old"), Find("second"));
    assign(x, Find("first"));
    pool_.push_back(Find("third.old"));
    has_chain_ = true;
  }

  // The state that the op writes.
  int StateFor(const DrawnOp& op, const std::vector<int>& arguments) const {
    std::vector<int> states;
    for (size_t id = 0; id < values_.size(); ++id) {
      const DrawnValue& value = values_[id];
      const bool is_int = value.types[0].dtype == DType::kInt64;
      if (value.kind == DrawnValue::Kind::kState &&
          is_int == (op.inputs[0].of == ArgumentClass::kInt)) {
        states.push_back(static_cast<int>(id));
      }
    }
    const int choice = arguments.size() > 1 ? arguments[1] : 0;
    return states.empty() ? -1 : states[choice % states.size()];
  }

  AttrValues AttrsOf(const DrawnOp& op, int choice) const {
    AttrValues attrs;
    for (const DrawnAttr& attr : op.attrs) {
      const int n = static_cast<int>(attr.values.size());
      attrs.emplace_back(attr.name, attr.values[choice % n]);
      choice /= n;
    }
    return attrs;
  }

  // Looks for arguments that fit, in the order of candidates, the last argument first.
  bool Fill(const DrawnOp& op, const std::vector<std::vector<int>>& candidates, int state, size_t n,
            std::vector<int>* arguments, int* attempts, ForwardOp* made) {
    constexpr int kMaxAttempts = 60;
    if (n == candidates.size())
      return ++*attempts <= kMaxAttempts && Fits(op, *arguments, state, made);
    for (int candidate : candidates[n]) {
      (*arguments)[n] = candidate;
      if (Fill(op, candidates, state, n + 1, arguments, attempts, made)) return true;
      if (*attempts > kMaxAttempts) return false;
    }
    return false;
  }

  // Whether inference takes the arguments; makes the outputs if it does.
  bool Fits(const DrawnOp& op, const std::vector<int>& arguments, int state, ForwardOp* made) {
    made->inputs.clear();
    size_t next = 0;
    for (const DrawnSlot& slot : op.inputs) {
      std::vector<int> ids(arguments.begin() + next, arguments.begin() + next + slot.count);
      next += slot.count;
      made->inputs.push_back({slot.name, ids});
    }
    // Besides, the state itself.
    if (op.is_state && op.type != "assign") {
      const bool has_y = FindOpSchema(op.type)->FindInput("Y") != nullptr;
      if (has_y) made->inputs.push_back({"Y", {state}});
      if (op.type == "lerp") made->inputs.push_back({"Weight", {Find("half.old")}});
      if (!has_y) made->inputs[0].second.push_back(state);
    }
    return Infer(op.outputs, state, made);
  }

  // The last value that the variable has.
  int Find(absl::string_view name) const {
    for (size_t i = values_.size(); i-- > 0;) {
      if (values_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }

  // An op that is always right. Returns its first output.
  int Make(const std::string& type, ValueSlots inputs, AttrValues attrs = {}) {
    ForwardOp made{type, std::move(inputs), {}, std::move(attrs)};
    if (!Infer(1, -1, &made)) return -1;
    made_.push_back(made);
    for (const auto& [slot, ids] : made.outputs) {
      if (slot != "Softmax" && slot != "XShape") return ids[0];
    }
    return -1;
  }

  // The types of its outputs; false if inference does not take its inputs.
  bool InferTypes(const ForwardOp& made, const InferContext::Slots& out, size_t num_outputs,
                  std::array<InferContext::Types, 3>* types) const {
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

  // Makes the outputs: `count` in a slot that may hold several, or `state`, if that is not -1.
  // Returns whether the inputs fit.
  bool Infer(int count, int state, ForwardOp* made) {
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
    const bool is_differentiable = !Differentiate(values_, *made).empty();
    for (const InferContext::Slot& slot : out) {
      std::vector<int> ids;
      for (size_t at = slot.first; at < slot.first + slot.count; ++at) {
        const ThreeTypes of = {*types[0][at], *types[1][at], *types[2][at]};
        ids.push_back(state >= 0 ? state : Output(*made, slot.name, of, is_differentiable));
      }
      made->outputs.push_back({std::string(slot.name), std::move(ids)});
    }
    return true;
  }

  // Of an op that reads sizes from a tensor.
  TensorType UnknownSizes(const ForwardOp& made, int t) const {
    for (const char* slot : {"Shape", "ShapeTensor"}) {
      for (int id : SlotOf(made.inputs, slot)) {
        const int64_t rank = NumElements(values_[id].types[t].dims);
        return {kDrawnFloat, Dims(std::max<int64_t>(rank, 1), -1)};
      }
    }
    for (const auto& [name, value] : made.attrs) {
      const auto* dims = name == "shape" ? std::get_if<std::vector<int64_t>>(&value) : nullptr;
      if (dims != nullptr) return {kDrawnFloat, Dims(dims->begin(), dims->end())};
    }
    for (int id : SlotOf(made.inputs, "Input")) {
      return {kDrawnFloat, Dims(values_[id].types[t].dims.size(), -1)};
    }
    return {kDrawnFloat, {}};
  }

  int Output(const ForwardOp& made, absl::string_view slot, const ThreeTypes& types,
             bool is_differentiable) {
    // MeanOut is Mean.
    absl::string_view in = slot;
    if (absl::ConsumeSuffix(&in, "Out") && !in.empty()) {
      for (const auto& [name, ids] : made.inputs) {
        if (name == in) return ids[0];
      }
    }
    const bool is_differentiated =
        is_differentiable && types[0].dtype == kDrawnFloat && HasGradient(made.type, slot);
    const bool is_size = made.type == "shape" || made.type == "size" || made.type == "slice";
    const int id = Add({NameOfOutput(made, slot, types), types, DrawnValue::Kind::kMade,
                        is_differentiated, is_size && types[0].dtype != kDrawnFloat});
    if (slot != "XShape") pool_.push_back(id);
    return id;
  }

  // In place: that of an argument, whose value is lost.
  std::string NameOfOutput(const ForwardOp& made, absl::string_view slot, const ThreeTypes& types) {
    if (std::exchange(is_in_place_, false)) {
      for (const auto& [name, ids] : made.inputs) {
        for (int id : ids) {
          const DrawnValue::Kind kind = values_[id].kind;
          const bool may_be_lost =
              kind == DrawnValue::Kind::kMade || kind == DrawnValue::Kind::kFeed;
          if (!may_be_lost || values_[id].types != types) continue;
          pool_.erase(std::remove(pool_.begin(), pool_.end(), id), pool_.end());
          return values_[id].name;
        }
      }
    }
    return absl::StrCat(made.type, "_", values_.size(), ".", slot);
  }

  // --- The loss ----------------------------------------------------------------------------------

  // A value that depends on parameters.
  int Differentiable(int choice) {
    std::vector<int> candidates;
    for (int id : pool_) {
      if (values_[id].needs_gradient && values_[id].kind == DrawnValue::Kind::kMade) {
        candidates.push_back(id);
      }
    }
    std::reverse(candidates.begin(), candidates.end());
    if (!candidates.empty()) return candidates[choice % candidates.size()];
    return Make("mul", {{"X", {Find("x")}}, {"Y", {Find("weight")}}});
  }

  int Mean(int x) { return Make("mean", {{"X", {x}}}); }
  int Sum(int x) { return Make("reduce_sum", {{"X", {x}}}, {{"reduce_all", true}}); }
  int Times(int x, int y) { return Make("elementwise_mul", {{"X", {x}}, {"Y", {y}}}); }
  int Square(int x) { return Make("square", {{"X", {x}}}); }

  int Loss(int kind, int of, int with) {
    const int x = Differentiable(of), y = Differentiable(with);
    switch (kind % 10) {
      case 1:
        return Sum(x);
      case 2: {
        const int decay = Make("squared_l2_norm", {{"X", {Find("weight")}}});
        const int small = Make("scale", {{"X", {decay}}}, {{"scale", 0.01f}});
        return Make("sum", {{"X", {AsVector1(Mean(Square(x))), AsVector1(small)}}});
      }
      case 3: {  // a weighted mean
        const int gate = Make("sigmoid", {{"X", {x}}});
        return Make("elementwise_div", {{"X", {Sum(Times(gate, x))}}, {"Y", {Sum(gate)}}});
      }
      case 4:
        return Make("sqrt", {{"X", {Mean(Square(x))}}});
      case 5:
        return Make("elementwise_mul", {{"X", {Mean(x)}}, {"Y", {Mean(y)}}});
      case 6:
        return Make("squared_l2_norm", {{"X", {x}}});
      case 7:
        return Make("sum", {{"X", {AsVector1(Mean(x)), AsVector1(Mean(y))}}});
      case 8: {
        const int each =
            Make("softmax_with_cross_entropy", {{"Label", {Find("label")}}, {"Logits", {x}}});
        return Mean(each < 0 ? x : each);
      }
      default:
        return Mean(x);
    }
  }

  // Scalars of different ranks do not add up.
  int AsVector1(int x) { return Make("reshape", {{"X", {x}}}, {{"shape", Ints{1}}}); }

  const DrawnSpec& spec_;
  std::vector<DrawnValue> values_;
  std::vector<int> pool_;  // arguments of ops
  std::vector<ForwardOp> made_;
  std::vector<int> drawn_;
  bool is_in_place_ = false;  // the first output of the op that is drawn
  bool has_chain_ = false;
};

}  // namespace

DrawnForward DrawForward(const DrawnSpec& spec) { return ForwardBuilder(spec).Build(); }

}  // namespace weft::testing
