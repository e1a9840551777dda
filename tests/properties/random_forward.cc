#include "tests/properties/random_forward.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/op_schema.h"
#include "tests/properties/random_blocks.h"
#include "tests/properties/random_ops.h"
#include "tests/properties/random_pool.h"

namespace weft::testing {
namespace {

// Rows of a feed that is whole, but declared as long as a batch.
constexpr int kWholeRows = 3;

class ForwardBuilder {
 public:
  explicit ForwardBuilder(const RandomSpec& spec) : spec_(spec) {}

  RandomForward Build() {
    DeclareValues();
    for (const OpChoice& choice : spec_.ops) Draw(choice);
    std::vector<int> losses = {Loss(spec_.loss, spec_.loss_of, spec_.loss_with)};
    if (spec_.second_loss > 0) {
      pool_.Withdraw(losses[0]);
      losses.push_back(Loss(spec_.second_loss, spec_.loss_with, spec_.loss_of));
    }
    return {pool_.values(), pool_.ops(), std::move(losses), has_chain_, std::move(drawn_)};
  }

 private:
  // --- Values ------------------------------------------------------------------------------------

  void DeclareValues() {
    for (const RandomFeed& feed : RandomFeeds()) {
      ThreeTypes types;
      for (TensorType& type : types) type = {feed.dtype, feed.dims};
      const int at = feed.axis.value_or(0);
      if (feed.dims[at] == -1) {
        const bool is_split = feed.axis.has_value();
        types[kWhole].dims[at] = is_split ? spec_.nranks * spec_.rows : kWholeRows;
        types[kPart].dims[at] = is_split ? spec_.rows : kWholeRows;
      }
      pool_.Offer(pool_.Add({feed.name, types, RandomValue::Kind::kFeed}));
    }
    for (const RandomState& state : RandomStates()) {
      const TensorType type = {state.dtype, state.dims};
      const bool is_parameter = state.kind == RandomValue::Kind::kParam;
      const int id = pool_.Add({state.name, {type, type, type}, state.kind, is_parameter});
      if (state.kind == RandomValue::Kind::kInner) continue;
      if (state.kind != RandomValue::Kind::kState) {
        pool_.Offer(id);
        continue;
      }
      // Gradient ops must read what forward ops have read: ops read a copy.
      const int copy = pool_.Add({absl::StrCat(state.name, ".old"), pool_[id].types});
      pool_.Offer(copy);
      Assign(id, copy);
    }
  }

  void Assign(int from, int to) { pool_.Append({"assign", {{"X", {from}}}, {{"Out", {to}}}, {}}); }

  // --- Forward ops -------------------------------------------------------------------------------

  // Branches, loops, chains and fetch ops are drawn as often as so many ops.
  static constexpr int kOthers = 24;

  void Draw(const OpChoice& choice) {
    const int num_ops = static_cast<int>(RandomOps().size());
    const int index = choice.op % (num_ops + kOthers);
    if (index >= num_ops) return DrawOther((index - num_ops) % 4, choice);
    const RandomOp& op = RandomOps()[index];
    ForwardOp made{op.type, {}, {}, AttrsOf(op, choice.attrs)};
    if (choice.has_other_gradient) made.gradient_attrs = AttrsOf(op, choice.attrs + 1);
    is_in_place_ = choice.is_in_place;
    const std::vector<std::vector<int>> candidates = CandidatesOf(op, choice.arguments);
    const int state = op.is_state ? StateFor(op, choice.arguments) : -1;
    if (op.is_state && state < 0) return;
    std::vector<int> arguments(candidates.size());
    int attempts = 0;
    if (!Fill(op, candidates, state, 0, &arguments, &attempts, &made)) return;
    drawn_.push_back(index);
    pool_.Append(std::move(made));
  }

  // For each argument of the op.
  std::vector<std::vector<int>> CandidatesOf(const RandomOp& op,
                                             const std::vector<int>& choices) const {
    std::vector<std::vector<int>> candidates;
    for (const RandomSlot& slot : op.inputs) {
      for (int i = 0; i < slot.count; ++i) {
        const size_t n = candidates.size();
        candidates.push_back(pool_.Candidates(slot.of, n < choices.size() ? choices[n] : 0));
        // Two statistics, two counts.
        if (slot.of == ArgumentClass::kStatistic || slot.of == ArgumentClass::kCount) {
          const bool is_second = slot.name == "Variance" || slot.name == "StatNeg";
          candidates.back() = {candidates.back()[is_second ? 1 : 0]};
        }
      }
    }
    return candidates;
  }

  void DrawOther(int number, const OpChoice& choice) {
    if (number == 0) return DrawBranch(choice, &pool_);
    if (number == 1) return DrawLoop(choice, &pool_);
    if (number == 2) return DrawChain(choice.arguments);
    DrawFetch(choice);
  }

  // A value, and what it was one and two steps before.
  void DrawChain(const std::vector<int>& choices) {
    const int of = pool_.Pick(ArgumentClass::kFloat, choices, 0);
    const int x = pool_.AsVector1(pool_.Scalar(of, "reduce_mean"));
    Assign(pool_.Find("second.old"), pool_.Find("third"));
    Assign(pool_.Find("first.old"), pool_.Find("second"));
    Assign(x, pool_.Find("first"));
    pool_.Offer(pool_.Find("third.old"));
    has_chain_ = true;
  }

  // Of any value. A copy keeps what the op finds.
  void DrawFetch(const OpChoice& choice) {
    const std::vector<int>& offered = pool_.offered();
    const int from_last = (choice.arguments.empty() ? 0 : choice.arguments[0]) % offered.size();
    const int value = offered[offered.size() - 1 - from_last];
    const int copy =
        pool_.Add({absl::StrCat("fetched_", pool_.values().size()), pool_[value].types});
    Assign(value, copy);
    pool_.Append({kFetch, {{"X", {value}}}, {{"Out", {copy}}}, {}});
  }

  // The state that the op writes.
  int StateFor(const RandomOp& op, const std::vector<int>& arguments) const {
    std::vector<int> states;
    for (size_t id = 0; id < pool_.values().size(); ++id) {
      const RandomValue& value = pool_[id];
      const bool is_int = value.types[0].dtype == DType::kInt64;
      if (value.kind == RandomValue::Kind::kState &&
          is_int == (op.inputs[0].of == ArgumentClass::kInt)) {
        states.push_back(static_cast<int>(id));
      }
    }
    const int choice = arguments.size() > 1 ? arguments[1] : 0;
    return states.empty() ? -1 : states[choice % states.size()];
  }

  AttrValues AttrsOf(const RandomOp& op, int choice) const {
    AttrValues attrs;
    for (const RandomAttr& attr : op.attrs) {
      const int n = static_cast<int>(attr.values.size());
      attrs.emplace_back(attr.name, attr.values[choice % n]);
      choice /= n;
    }
    return attrs;
  }

  // Looks for arguments that fit, in the order of candidates, the last argument first.
  bool Fill(const RandomOp& op, const std::vector<std::vector<int>>& candidates, int state,
            size_t n, std::vector<int>* arguments, int* attempts, ForwardOp* made) {
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
  bool Fits(const RandomOp& op, const std::vector<int>& arguments, int state, ForwardOp* made) {
    made->inputs.clear();
    size_t next = 0;
    for (const RandomSlot& slot : op.inputs) {
      std::vector<int> ids(arguments.begin() + next, arguments.begin() + next + slot.count);
      next += slot.count;
      made->inputs.push_back({slot.name, ids});
    }
    // Besides, the state itself.
    if (op.is_state && op.type != "assign") {
      const bool has_y = FindOpSchema(op.type)->FindInput("Y") != nullptr;
      if (has_y) made->inputs.push_back({"Y", {state}});
      if (op.type == "lerp") made->inputs.push_back({"Weight", {pool_.Find("half.old")}});
      if (!has_y) made->inputs[0].second.push_back(state);
    }
    return pool_.Infer(op.outputs, state, is_in_place_, made);
  }

  // --- The loss ----------------------------------------------------------------------------------

  // A value that depends on parameters.
  int Differentiable(int choice) {
    std::vector<int> candidates;
    for (int id : pool_.offered()) {
      if (pool_[id].needs_gradient && pool_[id].kind == RandomValue::Kind::kMade) {
        candidates.push_back(id);
      }
    }
    std::reverse(candidates.begin(), candidates.end());
    if (!candidates.empty()) return candidates[choice % candidates.size()];
    return pool_.Make("mul", {{"X", {pool_.Find("x")}}, {"Y", {pool_.Find("weight")}}});
  }

  int Mean(int x) { return pool_.Make("mean", {{"X", {x}}}); }
  int Sum(int x) { return pool_.Make("reduce_sum", {{"X", {x}}}, {{"reduce_all", true}}); }
  int Times(int x, int y) { return pool_.Make("elementwise_mul", {{"X", {x}}, {"Y", {y}}}); }
  int Square(int x) { return pool_.Make("square", {{"X", {x}}}); }

  int Loss(int kind, int of, int with) {
    const int x = Differentiable(of), y = Differentiable(with);
    switch (kind % 10) {
      case 1:
        return Sum(x);
      case 2: {
        const int decay = pool_.Make("squared_l2_norm", {{"X", {pool_.Find("weight")}}});
        const int small = pool_.Make("scale", {{"X", {decay}}}, {{"scale", 0.01f}});
        return pool_.Make("sum",
                          {{"X", {pool_.AsVector1(Mean(Square(x))), pool_.AsVector1(small)}}});
      }
      case 3: {  // a weighted mean
        const int gate = pool_.Make("sigmoid", {{"X", {x}}});
        return pool_.Make("elementwise_div", {{"X", {Sum(Times(gate, x))}}, {"Y", {Sum(gate)}}});
      }
      case 4:
        return pool_.Make("sqrt", {{"X", {Mean(Square(x))}}});
      case 5:
        return pool_.Make("elementwise_mul", {{"X", {Mean(x)}}, {"Y", {Mean(y)}}});
      case 6:
        return pool_.Make("squared_l2_norm", {{"X", {x}}});
      case 7:
        return pool_.Make("sum", {{"X", {pool_.AsVector1(Mean(x)), pool_.AsVector1(Mean(y))}}});
      case 8: {
        const int each = pool_.Make("softmax_with_cross_entropy",
                                    {{"Label", {pool_.Find("label")}}, {"Logits", {x}}});
        return Mean(each < 0 ? x : each);
      }
      default:
        return Mean(x);
    }
  }

  const RandomSpec& spec_;
  ValuePool pool_;
  std::vector<int> drawn_;
  bool is_in_place_ = false;  // the first output of the op that is drawn
  bool has_chain_ = false;
};

}  // namespace

RandomForward DrawForward(const RandomSpec& spec) { return ForwardBuilder(spec).Build(); }

}  // namespace weft::testing
