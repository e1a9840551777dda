#include "tests/properties/random_program.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"
#include "tests/properties/random_feeds.h"
#include "tests/properties/random_forward.h"
#include "tests/properties/random_gradients.h"
#include "tests/properties/random_values.h"
#include "tests/support/program_pair_builder.h"

namespace weft::testing {
namespace {

using Slots = ProgramBuilder::Slots;

constexpr auto kFloatType = static_cast<pb::VarType::Type>(kRandomFloat);

pb::VarType::Type ProtoType(const TensorType& type) {
  return static_cast<pb::VarType::Type>(type.dtype);
}
std::vector<int64_t> DimsOf(const TensorType& type) { return {type.dims.begin(), type.dims.end()}; }

std::string GradOf(const RandomValue& value) { return value.name + "@GRAD"; }

// Writes a forward pass down, and what follows from it.
class Writer {
 public:
  Writer(const RandomSpec& spec, const RandomForward& forward)
      : spec_(spec), values_(forward.values), ops_(forward.ops), losses_(forward.losses) {}

  RandomProgram Write() {
    WriteFeedOps();
    WriteForward();
    WriteBackward();
    WriteFetchOf(spec_.fetched_gradient);
    WriteUpdates();
    WriteFetchOf(spec_.fetched_result);
    std::vector<std::string> losses;
    for (int loss : losses_) losses.push_back(values_[loss].name);
    return {main_.Build(), startup_.Build(), losses, FeedsOf(values_, fed_), fetches_, false, {}};
  }

 private:
  // --- Variables ---------------------------------------------------------------------------------

  void Declare(const std::string& name, const TensorType& type) {
    if (declared_.insert(name).second) main_.Var(name, DimsOf(type), ProtoType(type));
  }

  void Declare(const RandomValue& value) {
    if (value.kind != RandomValue::Kind::kInner && declared_.count(value.name) > 0) return;
    const TensorType& type = value.types[kDeclared];
    switch (value.kind) {
      case RandomValue::Kind::kMade:
        return Declare(value.name, type);
      case RandomValue::Kind::kFeed:
        Declare(value.name, type);
        main_.last_var().set_need_check_feed(IsMarked(spec_, value.name));
        fed_.insert(value.name);
        return;
      case RandomValue::Kind::kParam:
        declared_.insert(value.name);
        return DeclareParameter(value.name, type);
      case RandomValue::Kind::kInner:
        return DeclareInner(value.name, type);
      default:
        declared_.insert(value.name);
        pair_.State(value.name, DimsOf(type), ProtoType(type), StartOf(value.name));
    }
  }

  static float StartOf(const std::string& name) {
    for (const RandomState& state : RandomStates()) {
      if (name == state.name) return state.start;
    }
    return 0;
  }

  // In each block that uses the state; the startup program fills it once.
  void DeclareInner(const std::string& name, const TensorType& type) {
    if (!inner_.insert({last_block_, name}).second) return;
    if (declared_.insert(name).second) {
      pair_.State(name, DimsOf(type), ProtoType(type), StartOf(name));
    } else {
      main_.Var(name, DimsOf(type), ProtoType(type)).last_var().set_persistable(true);
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

  // What feed ops read, or what fetch ops write.
  std::string ListOf(const std::string& name, pb::VarType::Type type) {
    if (declared_.insert(name).second) {
      main_.Var(name, {}).last_var().mutable_type()->set_type(type);
      main_.last_var().mutable_type()->clear_lod_tensor();
      main_.last_var().set_persistable(true);
    }
    return name;
  }

  // --- Feed and fetch ops ------------------------------------------------------------------------

  void WriteFeedOps() {
    std::set<int> read;
    for (const ForwardOp& op : ops_) {
      for (const auto& [slot, values] : op.inputs) read.insert(values.begin(), values.end());
    }
    int col = 0;
    for (int value : read) {
      const RandomValue& feed = values_[value];
      if (feed.kind != RandomValue::Kind::kFeed || !HasFeedOp(spec_, feed.name)) continue;
      Declare(feed);
      WriteOp("feed", {{"X", {ListOf("feed", pb::VarType::FEED_MINIBATCH)}}},
              {{"Out", {feed.name}}}, {{"col", col++}}, kRoleForward);
    }
  }

  // The copy has the value that the op finds.
  void WriteFetch(const std::string& variable, const std::string& copy) {
    const int col = static_cast<int>(fetches_.size());
    WriteOp(kFetch, {{"X", {variable}}}, {{"Out", {ListOf("fetch", pb::VarType::FETCH_LIST)}}},
            {{"col", col}}, kRoleForward);
    fetches_.push_back({variable, copy});
  }

  // Of one of the variables so far.
  void WriteFetchOf(int choice) {
    if (choice == 0) return;
    std::vector<pb::VarDesc> variables;
    for (const pb::VarDesc& var : main_.desc().blocks(0).vars()) {
      const bool is_tensor = var.type().type() == pb::VarType::LOD_TENSOR;
      if (is_tensor && !absl::EndsWith(var.name(), ".XShape")) variables.push_back(var);
    }
    const pb::VarDesc& var = variables[choice % variables.size()];
    const pb::VarType::TensorDesc& type = var.type().lod_tensor().tensor();
    const std::string copy = absl::StrCat("fetched.", fetches_.size());
    main_.Var(copy, {type.dims().begin(), type.dims().end()}, type.data_type());
    WriteOp("assign", {{"X", {var.name()}}}, {{"Out", {copy}}}, {}, kRoleForward);
    WriteFetch(var.name(), copy);
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
                                values_[first_in].kind == RandomValue::Kind::kState;
      if (copies_state && used.count(first_out) == 0) continue;
      if (op.type == kFetch) {
        WriteFetch(values_[first_in].name, values_[first_out].name);
        continue;
      }
      if (!op.block.empty()) {
        WriteBlock(op);
        continue;
      }
      const bool is_marked = spec_.marks == RandomMarks::kBoth && IsLoss(first_out);
      const Slots inputs = Names(op.inputs);  // declared first
      WriteOp(op.type, inputs, Names(op.outputs), op.attrs,
              is_marked ? kRoleForward | kRoleLoss : kRoleForward);
    }
  }

  void WriteBlock(const ForwardOp& op) {
    const Slots inputs = Names(op.inputs);  // declared first
    Slots outputs = Names(op.outputs);
    const std::string scope = absl::StrCat("scope_", last_block_ + 1);
    main_.Var(scope, {}).last_var().mutable_type()->set_type(pb::VarType::STEP_SCOPES);
    main_.last_var().mutable_type()->clear_lod_tensor();
    outputs.push_back({op.type == "while" ? "StepScopes" : "Scope", {scope}});
    WriteOp(op.type, inputs, outputs, op.attrs, kRoleForward);
    main_.BlockAttr("sub_block", ++last_block_);
    ListOf("fetch", pb::VarType::FETCH_LIST);
    main_.NewBlock();
    for (const ForwardOp& inner : op.block) {
      if (inner.type == kFetch) {
        WriteFetch(values_[inner.inputs[0].second[0]].name,
                   values_[inner.outputs[0].second[0]].name);
        continue;
      }
      const Slots inputs = Names(inner.inputs);
      WriteOp(inner.type, inputs, Names(inner.outputs), inner.attrs, kRoleForward);
    }
    main_.InBlock(0);
  }

  // --- Backward ----------------------------------------------------------------------------------

  bool IsLoss(int value) const { return std::count(losses_.begin(), losses_.end(), value) > 0; }

  void WriteBackward() {
    CountGradients();
    const bool is_marked = spec_.marks != RandomMarks::kNone;
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
      if (values_[value].kind != RandomValue::Kind::kParam) return;
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
      if (spec_.updates == RandomUpdates::kByHand) {
        WriteUpdateByHand(values_[value]);
      } else {
        WriteOptimizer(values_[value]);
      }
    }
  }

  void WriteOptimizer(const RandomValue& param) {
    const std::string grad = GradOf(param), velocity = param.name + ".velocity";
    Slots inputs = {{"Grad", {grad}}, {"LearningRate", {"learning_rate"}}, {"Param", {param.name}}};
    Slots outputs = {{"ParamOut", {param.name}}};
    const bool has_momentum = spec_.updates == RandomUpdates::kMomentum;
    if (has_momentum) {
      pair_.State(velocity, DimsOf(param.types[kDeclared]), kFloatType, 0);
      inputs.push_back({"Velocity", {velocity}});
      outputs.push_back({"VelocityOut", {velocity}});
    }
    WriteOp(has_momentum ? "momentum" : "sgd", inputs, outputs,
            has_momentum ? AttrValues{{"mu", 0.5f}} : AttrValues(), kRoleOptimize);
    main_.Pairs({param.name, grad});
  }

  void WriteUpdateByHand(const RandomValue& param) {
    const std::string change = param.name + ".change";
    Declare(change, param.types[kDeclared]);
    WriteOp("scale", {{"X", {GradOf(param)}}}, {{"Out", {change}}}, {{"scale", 0.125f}},
            kRoleOptimize);
    WriteOp("elementwise_sub", {{"X", {param.name}}, {"Y", {change}}}, {{"Out", {param.name}}}, {},
            kRoleOptimize);
  }

  const RandomSpec& spec_;
  const std::vector<RandomValue>& values_;
  const std::vector<ForwardOp>& ops_;
  const std::vector<int>& losses_;
  ProgramPairBuilder pair_;
  ProgramBuilder& main_ = pair_.main;
  ProgramBuilder& startup_ = pair_.startup;
  std::map<int, int> expected_, written_;  // gradients by value
  std::vector<int> trained_;
  std::set<std::string> declared_, fed_;
  std::set<std::pair<int, std::string>> inner_;  // states by block
  std::vector<RandomFetch> fetches_;
  int next_seed_ = 0, last_block_ = 0;
};

}  // namespace

RandomProgram BuildRandomProgram(const RandomSpec& spec) {
  const RandomForward forward = DrawForward(spec);
  RandomProgram program = Writer(spec, forward).Write();
  program.has_chain = forward.has_chain;
  program.drawn = forward.drawn;
  return program;
}

std::ostream& operator<<(std::ostream& out, const RandomSpec& spec) {
  return out << spec.nranks << " ranks, " << spec.rows << " rows each\n"
             << ProgramText(BuildRandomProgram(spec).main);
}

}  // namespace weft::testing
