#include "tests/drawn_program.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"
#include "tests/drawn_forward.h"
#include "tests/drawn_gradients.h"
#include "tests/drawn_values.h"
#include "tests/program_pair_builder.h"

namespace weft::testing {
namespace {

using Slots = ProgramBuilder::Slots;

constexpr auto kFloatType = static_cast<pb::VarType::Type>(kDrawnFloat);

pb::VarType::Type ProtoType(const TensorType& type) {
  return static_cast<pb::VarType::Type>(type.dtype);
}
std::vector<int64_t> DimsOf(const TensorType& type) { return {type.dims.begin(), type.dims.end()}; }

std::string GradOf(const DrawnValue& value) { return value.name + "@GRAD"; }

// Writes a forward pass down, and what follows from it.
class Writer {
 public:
  Writer(const DrawnSpec& spec, const DrawnForward& forward)
      : spec_(spec), values_(forward.values), ops_(forward.ops), losses_(forward.losses) {}

  DrawnProgram Write() {
    WriteForward();
    WriteBackward();
    WriteUpdates();
    std::vector<std::string> losses;
    for (int loss : losses_) losses.push_back(values_[loss].name);
    return {main_.Build(), startup_.Build(), losses, Feeds(), false, {}};
  }

 private:
  // --- Variables ---------------------------------------------------------------------------------

  void Declare(const std::string& name, const TensorType& type) {
    if (declared_.insert(name).second) main_.Var(name, DimsOf(type), ProtoType(type));
  }

  void Declare(const DrawnValue& value) {
    if (declared_.count(value.name) > 0) return;
    const TensorType& type = value.types[kDeclared];
    switch (value.kind) {
      case DrawnValue::Kind::kMade:
        return Declare(value.name, type);
      case DrawnValue::Kind::kFeed:
        Declare(value.name, type);
        main_.last_var().set_need_check_feed(true);
        fed_.insert(value.name);
        return;
      case DrawnValue::Kind::kParam:
        declared_.insert(value.name);
        return DeclareParameter(value.name, type);
      default:
        declared_.insert(value.name);
        for (const DrawnState& state : DrawnStates()) {
          if (value.name != state.name) continue;
          pair_.State(value.name, DimsOf(type), ProtoType(type), state.start);
        }
    }
  }

  void DeclareParameter(const std::string& name, const TensorType& type) {
    for (ProgramBuilder* program : {&main_, &startup_}) {
      program->Var(name, DimsOf(type), kFloatType);
      program->last_var().set_persistable(true);
      program->last_var().set_is_parameter(true);
    }
    startup_.Op("uniform_random", {}, {{"Out", {name}}});
    startup_.IntAttr("dtype", kFloatType).LongsAttr("shape", DimsOf(type));
    startup_.FloatAttr("min", -1).FloatAttr("max", 1).IntAttr("seed", ++next_seed_);
  }

  Slots Names(const ValueSlots& slots) {
    Slots names;
    for (const auto& [slot, values] : slots) {
      names.push_back({slot, {}});
      for (int value : values) {
        Declare(values_[value]);
        names.back().second.push_back(values_[value].name);
      }
    }
    return names;
  }

  // --- Forward -----------------------------------------------------------------------------------

  void WriteOp(const std::string& type, const Slots& inputs, const Slots& outputs,
               const AttrValues& attrs, int role) {
    main_.Op(type, inputs, outputs, role);
    for (const auto& [name, value] : attrs) *main_.last_op().add_attrs() = MakeAttr(name, value);
  }

  void WriteForward() {
    std::set<int> used;
    for (const ForwardOp& op : ops_) {
      for (const auto& [slot, values] : op.inputs) used.insert(values.begin(), values.end());
    }
    for (const ForwardOp& op : ops_) {
      const int first_in = op.inputs.empty() ? -1 : op.inputs[0].second[0];
      const int first_out = op.outputs[0].second[0];
      const bool copies_state = op.type == "assign" && first_in >= 0 &&
                                values_[first_in].kind == DrawnValue::Kind::kState;
      if (copies_state && used.count(first_out) == 0) continue;
      if (!op.block.empty()) {
        WriteBlock(op);
        continue;
      }
      const bool is_marked = spec_.marks == DrawnMarks::kBoth && IsLoss(first_out);
      const Slots inputs = Names(op.inputs);  // declared first
      WriteOp(op.type, inputs, Names(op.outputs), op.attrs,
              is_marked ? kRoleForward | kRoleLoss : kRoleForward);
    }
  }

  void WriteBlock(const ForwardOp& op) {
    Slots outputs = Names(op.outputs);
    const std::string scope = values_[op.outputs[0].second[0]].name + ".scope";
    main_.Var(scope, {}).last_var().mutable_type()->set_type(pb::VarType::STEP_SCOPES);
    main_.last_var().mutable_type()->clear_lod_tensor();
    outputs.push_back({op.type == "while" ? "StepScopes" : "Scope", {scope}});
    WriteOp(op.type, Names(op.inputs), outputs, op.attrs, kRoleForward);
    main_.BlockAttr("sub_block", ++last_block_);
    main_.NewBlock();
    for (const ForwardOp& inner : op.block) {
      WriteOp(inner.type, Names(inner.inputs), Names(inner.outputs), inner.attrs, kRoleForward);
    }
    main_.InBlock(0);
  }

  // --- Backward ----------------------------------------------------------------------------------

  bool IsLoss(int value) const { return std::count(losses_.begin(), losses_.end(), value) > 0; }

  void WriteBackward() {
    CountGradients();
    const bool is_marked = spec_.marks != DrawnMarks::kNone;
    for (int loss : losses_) {
      const std::string seed = GradOf(values_[loss]);
      const TensorType& type = values_[loss].types[kDeclared];
      Declare(seed, type);
      FillConstant(&main_, seed, DimsOf(type), kFloatType, 1,
                   is_marked ? kRoleBackward | kRoleLoss : kRoleBackward);
      written_[loss] = 1;
    }
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
      if (!HasGradients(*op)) continue;
      for (const GradientOp& gradient : Differentiate(values_, *op)) WriteGradientOp(gradient);
    }
  }

  // How many gradients of each value gradient ops will write.
  void CountGradients() {
    for (int loss : losses_) expected_[loss] = 1;
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
      if (!HasGradients(*op)) continue;
      for (const GradientOp& gradient : Differentiate(values_, *op)) {
        for (const auto& [slot, values] : gradient.outputs) {
          for (int value : values) {
            if (value >= 0) ++expected_[value];
          }
        }
      }
    }
  }

  // Whether the loss depends on an output.
  bool HasGradients(const ForwardOp& op) const {
    for (const auto& [slot, values] : op.outputs) {
      for (int value : values) {
        if (expected_.count(value) > 0 && values_[value].needs_gradient) return true;
      }
    }
    return false;
  }

  // The gradient of an output; zeros if the loss does not depend on that one.
  std::string Gradient(int value) {
    const std::string name = GradOf(values_[value]);
    Declare(name, values_[value].types[kDeclared]);
    if (written_.emplace(value, 0).second) {
      WriteOp("fill_zeros_like", {{"X", {values_[value].name}}}, {{"Out", {name}}}, {},
              kRoleBackward);
    }
    return name;
  }

  void WriteGradientOp(const GradientOp& op) {
    Slots inputs, outputs;
    for (const auto& [slot, ins] : op.inputs) {
      inputs.push_back({slot, {}});
      for (const GradientOp::Input& in : ins) {
        inputs.back().second.push_back(in.is_gradient ? Gradient(in.value)
                                                      : values_[in.value].name);
      }
    }
    std::vector<int> complete;
    for (const auto& [slot, values] : op.outputs) {
      outputs.push_back({slot, {}});
      for (int value : values) {
        outputs.back().second.push_back(value < 0 ? std::string(kEmptyVarName) : NextPart(value));
        if (value >= 0 && written_[value] == expected_[value]) complete.push_back(value);
      }
    }
    WriteOp(op.type, inputs, outputs, op.attrs, kRoleBackward);
    Complete(complete);
  }

  // The variable of the next gradient of a value: there may be several, to be added.
  std::string NextPart(int value) {
    std::string name = GradOf(values_[value]);
    const int part = written_[value]++;
    if (expected_[value] > 1) absl::StrAppend(&name, "@RENAME@block0@", part);
    Declare(name, values_[value].types[kDeclared]);
    return name;
  }

  // The op that was written last has written all gradients of these values.
  void Complete(const std::vector<int>& values) {
    std::vector<std::string> pairs;
    const auto add_pair = [&](int value) {
      if (values_[value].kind != DrawnValue::Kind::kParam) return;
      pairs.insert(pairs.end(), {values_[value].name, GradOf(values_[value])});
      trained_.push_back(value);
    };
    for (int value : values) {
      if (expected_[value] == 1) add_pair(value);
    }
    if (!pairs.empty()) main_.Pairs(pairs);
    for (int value : values) {
      if (expected_[value] == 1) continue;
      const std::string name = GradOf(values_[value]);
      std::vector<std::string> parts;
      for (int i = 0; i < expected_[value]; ++i) {
        parts.push_back(absl::StrCat(name, "@RENAME@block0@", i));
      }
      Declare(name, values_[value].types[kDeclared]);
      WriteOp("sum", {{"X", parts}}, {{"Out", {name}}}, {}, kRoleBackward);
      pairs.clear();
      add_pair(value);
      if (!pairs.empty()) main_.Pairs(pairs);
    }
  }

  // --- Updates -----------------------------------------------------------------------------------

  void WriteUpdates() {
    pair_.State("learning_rate", {1}, kFloatType, 0.125f);
    for (int value : trained_) {
      if (spec_.updates == DrawnUpdates::kByHand) {
        WriteUpdateByHand(values_[value]);
      } else {
        WriteOptimizer(values_[value]);
      }
    }
  }

  void WriteOptimizer(const DrawnValue& param) {
    const std::string grad = GradOf(param), velocity = param.name + ".velocity";
    Slots inputs = {{"Grad", {grad}}, {"LearningRate", {"learning_rate"}}, {"Param", {param.name}}};
    Slots outputs = {{"ParamOut", {param.name}}};
    const bool has_momentum = spec_.updates == DrawnUpdates::kMomentum;
    if (has_momentum) {
      pair_.State(velocity, DimsOf(param.types[kDeclared]), kFloatType, 0);
      inputs.push_back({"Velocity", {velocity}});
      outputs.push_back({"VelocityOut", {velocity}});
    }
    WriteOp(has_momentum ? "momentum" : "sgd", inputs, outputs,
            has_momentum ? AttrValues{{"mu", 0.5f}} : AttrValues(), kRoleOptimize);
    main_.Pairs({param.name, grad});
  }

  void WriteUpdateByHand(const DrawnValue& param) {
    const std::string change = param.name + ".change";
    Declare(change, param.types[kDeclared]);
    WriteOp("scale", {{"X", {GradOf(param)}}}, {{"Out", {change}}}, {{"scale", 0.125f}},
            kRoleOptimize);
    WriteOp("elementwise_sub", {{"X", {param.name}}, {"Y", {change}}}, {{"Out", {param.name}}}, {},
            kRoleOptimize);
  }

  // --- Feeds -------------------------------------------------------------------------------------

  FeedSource Feeds() const {
    FeedSource source;
    std::vector<std::pair<const DrawnFeed*, Dims>> fed;
    for (const DrawnFeed& feed : DrawnFeeds()) {
      if (fed_.count(feed.name) == 0) continue;
      source.variables.push_back(feed.name);
      source.layouts[feed.name] =
          feed.axis.has_value() ? FeedLayout{feed.axis} : FeedLayout::Whole();
      for (const DrawnValue& value : values_) {
        if (value.name == feed.name) fed.emplace_back(&feed, value.types[kWhole].dims);
      }
    }
    source.read = [fed](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
      std::vector<Tensor> tensors;
      for (const auto& [feed, dims] : fed) tensors.push_back(ReadFeed(*feed, dims, step));
      return tensors;
    };
    return source;
  }

  // Between -1 and 1, or from 0 to below; different in every step, row and variable.
  static Tensor ReadFeed(const DrawnFeed& feed, const Dims& dims, int64_t step) {
    Tensor tensor;
    tensor.Resize(feed.dtype, dims);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double x = std::sin(1.0 + 12.9898 * i + 78.233 * step + 3.7719 * feed.name[0]);
      const double fraction = (x + 1) / 2.001;
      if (feed.dtype == DType::kInt64) {
        tensor.data<int64_t>()[i] = static_cast<int64_t>(fraction * feed.below);
      } else {
        tensor.data<double>()[i] = feed.below > 0 ? fraction : x;
      }
    }
    return tensor;
  }

  const DrawnSpec& spec_;
  const std::vector<DrawnValue>& values_;
  const std::vector<ForwardOp>& ops_;
  const std::vector<int>& losses_;
  ProgramPairBuilder pair_;
  ProgramBuilder& main_ = pair_.main;
  ProgramBuilder& startup_ = pair_.startup;
  std::map<int, int> expected_, written_;  // gradients by value
  std::vector<int> trained_;
  std::set<std::string> declared_, fed_;
  int next_seed_ = 0, last_block_ = 0;
};

}  // namespace

DrawnProgram BuildDrawn(const DrawnSpec& spec) {
  const DrawnForward forward = DrawForward(spec);
  DrawnProgram program = Writer(spec, forward).Write();
  program.has_chain = forward.has_chain;
  program.drawn = forward.drawn;
  return program;
}

std::ostream& operator<<(std::ostream& out, const DrawnSpec& spec) {
  return out << spec.nranks << " ranks, " << spec.rows << " rows each\n"
             << ProgramText(BuildDrawn(spec).main);
}

}  // namespace weft::testing

namespace rc {

using weft::testing::DrawnMarks;
using weft::testing::DrawnSpec;
using weft::testing::DrawnUpdates;
using weft::testing::OpChoice;

namespace {

// From 0 (what it shrinks to) to below `count`, whatever the size of the test.
Gen<int> Below(int count) { return gen::resize(kNominalSize, gen::inRange(0, count)); }

// More than there is to choose from.
constexpr int kMany = 1 << 20;

// Often one of the values that were made last.
Gen<int> Arguments() { return gen::oneOf(Below(3), Below(kMany)); }

Gen<bool> Rarely() {
  return gen::map(Below(12), [](int n) { return n == 1; });
}

Gen<OpChoice> Choices() {
  return gen::build<OpChoice>(
      gen::set(&OpChoice::op, Below(kMany)),
      gen::set(&OpChoice::arguments, gen::container<std::vector<int>>(3, Arguments())),
      gen::set(&OpChoice::attrs, Below(kMany)), gen::set(&OpChoice::is_in_place, Rarely()),
      gen::set(&OpChoice::has_other_gradient, Rarely()));
}

}  // namespace

Gen<DrawnSpec> Arbitrary<DrawnSpec>::arbitrary() {
  return gen::build<DrawnSpec>(
      gen::set(&DrawnSpec::ops, gen::resize(10, gen::container<std::vector<OpChoice>>(Choices()))),
      gen::set(&DrawnSpec::loss, Below(10)), gen::set(&DrawnSpec::loss_of, Below(8)),
      gen::set(&DrawnSpec::loss_with, Below(8)),
      gen::set(&DrawnSpec::second_loss, gen::oneOf(Below(1), Below(1), Below(10))),
      gen::set(&DrawnSpec::marks,
               gen::element(DrawnMarks::kBoth, DrawnMarks::kBoth, DrawnMarks::kBoth,
                            DrawnMarks::kBoth, DrawnMarks::kGradient, DrawnMarks::kNone)),
      gen::set(&DrawnSpec::updates, gen::element(DrawnUpdates::kSgd, DrawnUpdates::kMomentum,
                                                 DrawnUpdates::kSgd, DrawnUpdates::kByHand)),
      gen::set(&DrawnSpec::averages, gen::element(false, false, true)),
      gen::set(&DrawnSpec::exact_loss, gen::element(false, false, true)),
      gen::set(&DrawnSpec::nranks, gen::element(2, 2, 3)),
      gen::set(&DrawnSpec::rows, gen::element(2, 3, 3, 1)));
}

}  // namespace rc
