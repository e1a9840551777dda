#include "tests/support/training_programs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/tensor.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"
#include "tests/support/program_pair_builder.h"
#include "tests/support/update_ops.h"

namespace weft::testing {
namespace {

using Dims64 = std::vector<int64_t>;
using DataType = pb::VarType::Type;
using Slots = ProgramBuilder::Slots;

constexpr int kInputWidth = 3;
constexpr int kTableRows = 5;
constexpr int kTableWidth = 2;
constexpr int kClasses = 3;  // also what the other losses predict

DataType FloatType(bool fp64) { return fp64 ? pb::VarType::FP64 : pb::VarType::FP32; }

void NoAttrs(ProgramBuilder&) {}

// What an op computes, for the backward pass. A variable that ops write in place holds several
// values, one after the other.
using ValueId = int;
struct Value {
  std::string name;
  Dims64 dims;
  DataType type;
  bool needs_gradient = false;
  bool is_parameter = false;
  bool sparse_gradient = false;
};

// A forward op as its gradient op needs it. Backward walks these from the last to the first.
struct TapeEntry {
  std::string grad_type;  // "cast" has no gradient op of its own
  Slots kept;             // forward variables among the inputs
  std::string out_slot;   // whose gradient comes in
  ValueId out;
  std::vector<std::pair<std::string, std::vector<ValueId>>> ins;  // whose gradients come out
  std::function<void(ProgramBuilder&)> attrs;                     // of the op that was added last
};

class Builder {
 public:
  explicit Builder(const TrainingSpec& spec) : spec_(spec) {}

  TrainingPrograms Build() {
    std::vector<ValueId> trunk = {Input()};
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const LayerSpec& layer = spec_.layers[i];
      trunk.push_back(Layer(absl::StrCat("fc_", i), layer, trunk.back()));
    }
    std::vector<HeadSpec> heads = spec_.more_heads;
    heads.insert(heads.begin(), spec_.head);
    std::vector<ValueId> losses;
    for (size_t i = 0; i < heads.size(); ++i) {
      const ValueId from = trunk[heads[i].layer % trunk.size()];
      losses.push_back(Head(absl::StrCat("head_", i), heads[i], from));
    }
    if (!spec_.apart) losses = {Sum(losses)};
    for (ValueId loss : losses) MarkAsLoss(loss);
    AppendLearningRate(spec_, &pair_);
    for (size_t i = 0; i < losses.size(); ++i) {
      AppendUpdates(spec_, absl::StrCat("_", i), Backward(losses[i]), &pair_);
    }

    std::vector<std::string> loss_names;
    for (ValueId loss : losses) loss_names.push_back(values_[loss].name);
    return {main_.Build(),
            startup_.Build(),
            std::move(loss_names),
            std::move(parameters_),
            {feed_names_, [feeds = feeds_](int64_t step) { return ReadFeeds(feeds, step); }}};
  }

 private:
  // --- Feeds -------------------------------------------------------------------------------------

  struct Feed {
    DType dtype;
    Dims dims;
    int below;  // of integers
  };

  // Between -1 and 1, or from 0 to below; different in every step, row and variable.
  static absl::StatusOr<std::vector<Tensor>> ReadFeeds(const std::vector<Feed>& feeds,
                                                       int64_t step) {
    std::vector<Tensor> tensors;
    for (size_t f = 0; f < feeds.size(); ++f) {
      Tensor tensor;
      tensor.Resize(feeds[f].dtype, feeds[f].dims);
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const double x = std::sin(1.0 + 12.9898 * i + 78.233 * step + 37.719 * f);
        const double fraction = (x + 1) / 2.001;
        if (feeds[f].dtype == DType::kInt64) {
          tensor.data<int64_t>()[i] = static_cast<int64_t>(fraction * feeds[f].below);
        } else if (feeds[f].dtype == DType::kFloat64) {
          tensor.data<double>()[i] = feeds[f].below > 0 ? fraction : x;
        } else {
          tensor.data<float>()[i] = static_cast<float>(feeds[f].below > 0 ? fraction : x);
        }
      }
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  // `below`: of integers; of floating-point numbers, 1: none is negative.
  std::string Data(const std::string& name, int64_t width, DataType type, int below = 0) {
    main_.Var(name, {-1, width}, type);
    main_.last_var().set_need_check_feed(true);
    main_.last_var().set_stop_gradient(true);
    feed_names_.push_back(name);
    feeds_.push_back({*DTypeFromProto(type), {kBatch, width}, below});
    return name;
  }

  // --- Variables ---------------------------------------------------------------------------------

  ValueId NewValue(const std::string& name, Dims64 dims, DataType type, bool needs_gradient) {
    values_.push_back({name, std::move(dims), type, needs_gradient});
    return static_cast<ValueId>(values_.size()) - 1;
  }
  // With the variable that holds it.
  ValueId Declare(const std::string& name, const Dims64& dims, DataType type, bool needs_gradient) {
    main_.Var(name, dims, type);
    return NewValue(name, dims, type, needs_gradient);
  }

  ValueId Parameter(const std::string& name, const Dims64& dims, DataType type, bool frozen) {
    for (ProgramBuilder* program : {&main_, &startup_}) {
      program->Param(name, dims);
      program->last_var().mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(
          type);
    }
    const float limit = 1 / std::sqrt(static_cast<float>(dims[0]));
    startup_.Op("uniform_random", {}, {{"Out", {name}}});
    startup_.IntAttr("dtype", type).LongsAttr("shape", dims);
    startup_.FloatAttr("min", -limit).FloatAttr("max", limit).IntAttr("seed", ++next_seed_);
    parameters_.push_back(name);
    const ValueId value = NewValue(name, dims, type, !frozen);
    values_[value].is_parameter = true;
    return value;
  }

  // --- Forward -----------------------------------------------------------------------------------

  bool AnyNeedsGradient(const std::vector<ValueId>& values) const {
    return std::any_of(values.begin(), values.end(),
                       [&](ValueId value) { return values_[value].needs_gradient; });
  }

  // An op of one differentiable input, X, that gives another value of the same dims.
  ValueId Unary(const std::string& type, const std::string& out_name, ValueId x,
                const std::string& kept_slot) {
    const Value in = values_[x];
    const bool in_place = out_name == in.name;
    const ValueId out = in_place ? NewValue(out_name, in.dims, in.type, in.needs_gradient)
                                 : Declare(out_name, in.dims, in.type, in.needs_gradient);
    main_.Op(type, {{"X", {in.name}}}, {{"Out", {out_name}}});
    const std::string& kept = kept_slot == "X" ? in.name : out_name;
    tape_.push_back({type + "_grad", {{kept_slot, {kept}}}, "Out", out, {{"X", {x}}}, NoAttrs});
    return out;
  }

  ValueId Cast(ValueId x, DataType type) {
    const Value in = values_[x];
    if (in.type == type) return x;
    const std::string name = absl::StrCat("cast_", next_cast_++, ".tmp_0");
    const ValueId out = Declare(name, in.dims, type, in.needs_gradient);
    main_.Op("cast", {{"X", {in.name}}}, {{"Out", {name}}});
    main_.IntAttr("in_dtype", in.type).IntAttr("out_dtype", type);
    tape_.push_back({"cast", {}, "Out", out, {{"X", {x}}}, [=](ProgramBuilder& op) {
                       op.IntAttr("in_dtype", type).IntAttr("out_dtype", in.type);
                     }});
    return out;
  }

  // X (op) Y, where Y has the dims of X, or of its last dimension.
  ValueId Binary(const std::string& type, const std::string& out_name, ValueId x, ValueId y,
                 int axis) {
    const Value in = values_[x];
    const bool needs_gradient = AnyNeedsGradient({x, y});
    const ValueId out = out_name == in.name ? NewValue(out_name, in.dims, in.type, needs_gradient)
                                            : Declare(out_name, in.dims, in.type, needs_gradient);
    const Slots ins = {{"X", {in.name}}, {"Y", {values_[y].name}}};
    main_.Op(type, ins, {{"Out", {out_name}}}).IntAttr("axis", axis);
    tape_.push_back(
        {type + "_grad", ins, "Out", out, {{"X", {x}}, {"Y", {y}}}, [axis](ProgramBuilder& op) {
           op.IntAttr("axis", axis);
         }});
    return out;
  }

  // x, and what is looked up for ids, side by side.
  ValueId Input() {
    const ValueId x = NewValue(Data("x", kInputWidth, pb::VarType::FP32), {-1, kInputWidth},
                               pb::VarType::FP32, false);
    if (spec_.lookups == 0) return x;
    const ValueId table = Parameter("emb_0.w_0", {kTableRows, kTableWidth}, pb::VarType::FP32,
                                    /*frozen=*/false);
    const bool sparse = spec_.sparse && spec_.merged_steps == 1;
    values_[table].sparse_gradient = sparse;
    std::vector<ValueId> parts = {x};
    for (int i = 0; i < spec_.lookups; ++i) {
      parts.push_back(Reshape(i, Lookup(i, table, sparse)));
    }
    const Dims64 dims = {-1, kInputWidth + spec_.lookups * kTableWidth};
    const ValueId out = Declare("concat_0.tmp_0", dims, pb::VarType::FP32, true);
    std::vector<std::string> names;
    for (ValueId part : parts) names.push_back(values_[part].name);
    const Slots ins = {{"AxisTensor", {}}, {"X", names}};
    const auto attrs = [](ProgramBuilder& op) { op.IntAttr("axis", 1); };
    main_.Op("concat", ins, {{"Out", {"concat_0.tmp_0"}}});
    attrs(main_);
    tape_.push_back({"concat_grad", ins, "Out", out, {{"X", parts}}, attrs});
    return out;
  }

  ValueId Lookup(int i, ValueId table, bool sparse) {
    const std::string ids = Data(absl::StrCat("ids_", i), 1, pb::VarType::INT64, kTableRows);
    const std::string name = absl::StrCat("embedding_", i, ".tmp_0");
    const ValueId out = Declare(name, {-1, 1, kTableWidth}, pb::VarType::FP32, true);
    const Slots ins = {{"Ids", {ids}}, {"W", {values_[table].name}}};
    const auto attrs = [sparse](ProgramBuilder& op) { op.BoolAttr("is_sparse", sparse); };
    main_.Op("lookup_table_v2", ins, {{"Out", {name}}});
    attrs(main_);
    tape_.push_back({"lookup_table_v2_grad", ins, "Out", out, {{"W", {table}}}, attrs});
    return out;
  }

  // [-1, 1, width] to [-1, width].
  ValueId Reshape(int i, ValueId x) {
    const std::string name = absl::StrCat("reshape2_", i, ".tmp_0");
    const std::string shape = absl::StrCat("reshape2_", i, ".tmp_1");
    const ValueId out = Declare(name, {-1, kTableWidth}, pb::VarType::FP32, true);
    main_.Var(shape, {0, -1, 1, kTableWidth});
    main_.Op("reshape2", {{"X", {values_[x].name}}}, {{"Out", {name}}, {"XShape", {shape}}});
    pb::OpDesc::Attr* attr = main_.last_op().add_attrs();
    attr->set_name("shape");
    attr->set_type(pb::INTS);
    attr->add_ints(-1);
    attr->add_ints(kTableWidth);
    tape_.push_back({"reshape2_grad", {{"XShape", {shape}}}, "Out", out, {{"X", {x}}}, NoAttrs});
    return out;
  }

  ValueId Weight(const std::string& name, const LayerSpec& layer, const Dims64& dims,
                 DataType type) {
    if (layer.shares_weight) {
      for (auto it = weights_.rbegin(); it != weights_.rend(); ++it) {
        const Value& weight = values_[*it];
        if (weight.dims == dims && weight.type == type) return *it;
      }
    }
    weights_.push_back(Parameter(name, dims, type, layer.frozen));
    return weights_.back();
  }

  ValueId Layer(const std::string& name, const LayerSpec& layer, ValueId from) {
    const DataType type = FloatType(layer.fp64);
    const ValueId x = Cast(from, type);
    const ValueId w = Weight(name + ".w_0", layer, {values_[x].dims[1], layer.width}, type);
    std::string out_name = name + ".tmp_0";
    ValueId out = Declare(out_name, {-1, layer.width}, type, AnyNeedsGradient({x, w}));
    const Slots ins = {{"X", {values_[x].name}}, {"Y", {values_[w].name}}};
    const auto attrs = [](ProgramBuilder& op) {
      op.IntAttr("x_num_col_dims", 1).IntAttr("y_num_col_dims", 1);
    };
    main_.Op("mul", ins, {{"Out", {out_name}}});
    attrs(main_);
    tape_.push_back({"mul_grad", ins, "Out", out, {{"X", {x}}, {"Y", {w}}}, attrs});
    if (layer.bias) {
      const ValueId b = Parameter(name + ".b_0", {layer.width}, type, layer.frozen);
      biases_.insert(values_[b].name);
      if (!layer.in_place) out_name = name + ".tmp_1";
      out = Binary("elementwise_add", out_name, out, b, 1);
    }
    if (layer.activation != Activation::kNone) {
      static const char* const kTypes[] = {"", "relu", "tanh", "sigmoid"};
      if (!layer.in_place) out_name = name + ".tmp_2";
      out = Unary(kTypes[static_cast<int>(layer.activation)], out_name, out, "Out");
    }
    return out;
  }

  // A layer that predicts, and its loss.
  ValueId Head(const std::string& name, const HeadSpec& head, ValueId from) {
    LayerSpec layer;
    layer.width = kClasses;
    layer.bias = true;
    layer.fp64 = head.fp64;
    const ValueId prediction = Layer(name, layer, from);
    const DataType type = FloatType(head.fp64);
    const std::string each = name + ".each";
    switch (head.loss) {
      case LossKind::kSquaredError: {
        const ValueId y = NewValue(Data(name + ".y", kClasses, type), {-1, kClasses}, type, false);
        const ValueId error = Binary("elementwise_sub", name + ".error", prediction, y, -1);
        return Mean(name, Unary("square", each, error, "X"));
      }
      case LossKind::kSoftmaxCrossEntropy: {
        const std::string label = Data(name + ".label", 1, pb::VarType::INT64, kClasses);
        const std::string softmax = name + ".softmax";
        main_.Var(softmax, {-1, kClasses}, type);
        const ValueId loss = Declare(each, {-1, 1}, type, true);
        main_.Op("softmax_with_cross_entropy",
                 {{"Label", {label}}, {"Logits", {values_[prediction].name}}},
                 {{"Loss", {each}}, {"Softmax", {softmax}}});
        const auto attrs = [](ProgramBuilder& op) {
          op.IntAttr("axis", -1).BoolAttr("soft_label", false).IntAttr("ignore_index", -100);
        };
        attrs(main_);
        tape_.push_back({"softmax_with_cross_entropy_grad",
                         {{"Label", {label}}, {"Softmax", {softmax}}},
                         "Loss",
                         loss,
                         {{"Logits", {prediction}}},
                         attrs});
        return Mean(name, loss);
      }
      case LossKind::kSigmoidCrossEntropy: {
        const std::string label = Data(name + ".label", kClasses, type, /*below=*/1);
        const ValueId loss = Declare(each, {-1, kClasses}, type, true);
        const Slots ins = {{"X", {values_[prediction].name}}, {"Label", {label}}};
        main_.Op("sigmoid_cross_entropy_with_logits", ins, {{"Out", {each}}});
        tape_.push_back({"sigmoid_cross_entropy_with_logits_grad",
                         ins,
                         "Out",
                         loss,
                         {{"X", {prediction}}},
                         NoAttrs});
        return Mean(name, loss);
      }
    }
    return -1;
  }

  ValueId Mean(const std::string& name, ValueId x) {
    const std::string x_name = values_[x].name;
    const ValueId out = Declare(name + ".loss", {}, values_[x].type, true);
    const auto attrs = [](ProgramBuilder& op) { op.BoolAttr("reduce_all", true); };
    main_.Op("reduce_mean", {{"X", {x_name}}}, {{"Out", {name + ".loss"}}});
    attrs(main_);
    maker_[out] = &main_.last_op();
    tape_.push_back({"reduce_mean_grad", {{"X", {x_name}}}, "Out", out, {{"X", {x}}}, attrs});
    return out;
  }

  ValueId Sum(const std::vector<ValueId>& losses) {
    ValueId sum = losses[0];
    for (size_t i = 1; i < losses.size(); ++i) {
      const std::string name = absl::StrCat("sum_", i, ".loss");
      sum = Binary("elementwise_add", name, sum, Cast(losses[i], values_[sum].type), -1);
      maker_[sum] = &main_.last_op();
    }
    return sum;
  }

  void MarkAsLoss(ValueId loss) {
    for (pb::OpDesc::Attr& attr : *maker_.at(loss)->mutable_attrs()) {
      if (attr.name() == kOpRoleAttr) attr.set_i(kRoleForward | kRoleLoss);
    }
  }

  // --- Backward ----------------------------------------------------------------------------------

  void DeclareGradient(const Value& value, const std::string& name) {
    if (!declared_gradients_.insert(name).second) return;
    if (value.sparse_gradient) {
      main_.Rows(name, value.dims);
    } else {
      main_.Var(name, value.dims, value.type);
    }
  }

  // Adds up where a value is used several times: each use writes a variable of its own.
  std::vector<ParamGradient> Backward(ValueId loss) {
    std::vector<int> uses(values_.size(), 0), done(values_.size(), 0);
    std::vector<bool> reached(values_.size(), false);
    reached[loss] = true;
    for (auto entry = tape_.rbegin(); entry != tape_.rend(); ++entry) {
      if (!reached[entry->out]) continue;
      for (const auto& [slot, ins] : entry->ins) {
        for (ValueId in : ins) {
          if (!values_[in].needs_gradient) continue;
          ++uses[in];
          reached[in] = true;
        }
      }
    }

    const std::string loss_grad = values_[loss].name + "@GRAD";
    DeclareGradient(values_[loss], loss_grad);
    FillConstant(&main_, loss_grad, {}, values_[loss].type, 1, kRoleBackward | kRoleLoss);
    std::vector<ParamGradient> gradients;
    for (auto entry = tape_.rbegin(); entry != tape_.rend(); ++entry) {
      if (!reached[entry->out] || !values_[entry->out].needs_gradient) continue;
      BackwardOp(*entry, uses, &done, &gradients);
    }
    return gradients;
  }

  void BackwardOp(const TapeEntry& entry, const std::vector<int>& uses, std::vector<int>* done,
                  std::vector<ParamGradient>* gradients) {
    const bool is_cast = entry.grad_type == "cast";
    Slots ins = entry.kept, outs;
    ins.push_back({is_cast ? "X" : entry.out_slot + "@GRAD", {values_[entry.out].name + "@GRAD"}});
    std::vector<ValueId> written;
    for (const auto& [slot, values] : entry.ins) {
      std::vector<std::string> names;
      for (ValueId value : values) {
        if (!values_[value].needs_gradient) {
          if (values.size() > 1) names.emplace_back(kEmptyVarName);
          continue;
        }
        std::string name = values_[value].name + "@GRAD";
        if (uses[value] > 1) absl::StrAppend(&name, "@RENAME@block0@", (*done)[value]);
        ++(*done)[value];
        DeclareGradient(values_[value], name);
        names.push_back(std::move(name));
        written.push_back(value);
      }
      outs.push_back({is_cast ? "Out" : slot + "@GRAD", std::move(names)});
    }
    if (written.empty()) return;
    main_.Op(entry.grad_type, ins, outs, kRoleBackward);
    entry.attrs(main_);
    std::vector<std::string> pairs;
    for (ValueId value : written) {
      if (uses[value] == 1) Complete(value, &pairs, gradients);
    }
    AddPairs(pairs);
    for (ValueId value : written) {
      if (uses[value] == 1 || (*done)[value] != uses[value]) continue;
      std::vector<std::string> parts;
      const std::string name = values_[value].name + "@GRAD";
      for (int i = 0; i < uses[value]; ++i) {
        parts.push_back(absl::StrCat(name, "@RENAME@block0@", i));
      }
      DeclareGradient(values_[value], name);
      main_.Op("sum", {{"X", parts}}, {{"Out", {name}}}, kRoleBackward);
      pairs.clear();
      Complete(value, &pairs, gradients);
      AddPairs(pairs);
    }
  }

  void Complete(ValueId value, std::vector<std::string>* pairs,
                std::vector<ParamGradient>* gradients) {
    const Value& param = values_[value];
    if (!param.is_parameter) return;
    const std::string grad = param.name + "@GRAD";
    gradients->push_back(
        {{param.name, param.dims, param.type, biases_.count(param.name) > 0, param.sparse_gradient},
         grad});
    pairs->push_back(param.name);
    pairs->push_back(grad);
  }

  // Where gradients are accumulated, the sums are what is paired.
  void AddPairs(const std::vector<std::string>& pairs) {
    if (!pairs.empty() && spec_.merged_steps == 1) main_.Pairs(pairs);
  }

  const TrainingSpec& spec_;
  ProgramPairBuilder pair_;
  ProgramBuilder& main_ = pair_.main;
  ProgramBuilder& startup_ = pair_.startup;
  std::vector<std::string> feed_names_;
  std::vector<Feed> feeds_;
  std::vector<Value> values_;
  std::vector<TapeEntry> tape_;
  std::map<ValueId, pb::OpDesc*> maker_;  // of losses
  std::vector<ValueId> weights_;
  std::set<std::string> biases_;
  std::vector<std::string> parameters_;
  std::set<std::string> declared_gradients_;
  int next_seed_ = 0;
  int next_cast_ = 0;
};

}  // namespace

TrainingPrograms BuildPrograms(const TrainingSpec& spec) { return Builder(spec).Build(); }

}  // namespace weft::testing
