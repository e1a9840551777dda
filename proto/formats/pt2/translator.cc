#include "proto/formats/pt2/translator.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/host_schedules.h"
#include "proto/op_role.h"

namespace weft::pt2 {

// --- Ops
// -------------------------------------------------------------------------------------------

pb::OpDesc::Attr* NewOp::Add(absl::string_view name, pb::AttrType type) {
  pb::OpDesc::Attr* const attr = desc_.add_attrs();
  attr->set_name(std::string(name));
  attr->set_type(type);
  return attr;
}

NewOp& NewOp::Int(absl::string_view name, int64_t value) {
  Add(name, pb::INT)->set_i(static_cast<int32_t>(value));
  return *this;
}

NewOp& NewOp::Long(absl::string_view name, int64_t value) {
  Add(name, pb::LONG)->set_l(value);
  return *this;
}

NewOp& NewOp::Float(absl::string_view name, double value) {
  Add(name, pb::FLOAT)->set_f(static_cast<float>(value));
  return *this;
}

NewOp& NewOp::Bool(absl::string_view name, bool value) {
  Add(name, pb::BOOLEAN)->set_b(value);
  return *this;
}

NewOp& NewOp::Text(absl::string_view name, absl::string_view value) {
  Add(name, pb::STRING)->set_s(std::string(value));
  return *this;
}

NewOp& NewOp::Ints(absl::string_view name, const std::vector<int64_t>& values) {
  pb::OpDesc::Attr* const attr = Add(name, pb::INTS);
  for (const int64_t value : values) attr->add_ints(static_cast<int32_t>(value));
  return *this;
}

NewOp& NewOp::Longs(absl::string_view name, const std::vector<int64_t>& values) {
  pb::OpDesc::Attr* const attr = Add(name, pb::LONGS);
  for (const int64_t value : values) attr->add_longs(value);
  return *this;
}

NewOp& NewOp::Texts(absl::string_view name, const std::vector<std::string>& values) {
  pb::OpDesc::Attr* const attr = Add(name, pb::STRINGS);
  for (const std::string& value : values) attr->add_strings(value);
  return *this;
}

// --- What values follow from
// -----------------------------------------------------------------------

namespace {

bool HasOneElement(const TensorMeta& meta) {
  return std::all_of(meta.dims.begin(), meta.dims.end(), [](int64_t dim) { return dim == 1; });
}

}  // namespace

Translator::Translator(const Graph& graph, const Makers& makers, const Updates& updates)
    : graph_(graph), makers_(makers), updates_(updates) {}

absl::StatusOr<pb::ProgramDesc> Translator::Run() {
  WEFT_RETURN_IF_ERROR(Survey());
  desc_.mutable_version()->set_version(kPaddle3);
  pb::BlockDesc* const block = desc_.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  WEFT_RETURN_IF_ERROR(Declare());
  bool is_behind = false;  // the gradient of the loss
  for (const Node& node : graph_.nodes) {
    is_behind = is_behind || &node == seed_;
    if (!needed_.contains(&node)) continue;
    role_ = is_behind ? kRoleBackward : kRoleForward;
    if (!needed_before_updates_.contains(&node)) role_ = kRoleOptimize;
    if (&node == seed_) role_ = kRoleBackward | kRoleLoss;
    WEFT_RETURN_IF_ERROR(TranslateNode(node));
    node_of_op_.resize(block->ops_size(), &node - graph_.nodes.data());
  }
  role_ = kRoleOptimize;
  node_ = nullptr;
  MakeNewValues();
  WEFT_RETURN_IF_ERROR(AddUpdates());
  WEFT_RETURN_IF_ERROR(AddAverages());
  for (const auto& [rate, schedule] : graph_.schedules) {
    if (rate_variables_.count(rate) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the file has a schedule for the learning rate ",
                                                   rate, ", which no update has"));
  }
  WEFT_RETURN_IF_ERROR(AddMutations());
  WEFT_RETURN_IF_ERROR(lost_);
  node_of_op_.resize(block->ops_size(), graph_.nodes.size());
  return std::move(desc_);
}

std::vector<std::string> Translator::plain_values() const {
  std::vector<std::string> values = {loss_, seed_->outputs[0]};
  for (const Input& input : graph_.inputs) values.push_back(input.value);
  for (const auto& [gradient, param] : param_of_gradient_) values.push_back(gradient);
  return values;
}

absl::Status Translator::Survey() {
  for (const Node& node : graph_.nodes) WEFT_RETURN_IF_ERROR(CheckOutputs(node));
  WEFT_RETURN_IF_ERROR(FindSeed());
  WEFT_RETURN_IF_ERROR(FollowSeed());
  FindNeeded();
  WEFT_RETURN_IF_ERROR(CheckRules());
  WEFT_RETURN_IF_ERROR(CheckReaders());
  WEFT_RETURN_IF_ERROR(FindGradients());
  std::vector<std::string> values = graph_.results;
  values.push_back(loss_);
  for (const auto& [gradient, param] : param_of_gradient_) values.push_back(gradient);
  needed_before_updates_ = NodesFor(std::move(values));
  return absl::OkStatus();
}

// A rule makes all outputs; gradients of three inputs know which ones there are.
absl::Status Translator::CheckOutputs(const Node& node) {
  const auto rule = Rules().find(node.target);
  if (rule == Rules().end()) return absl::OkStatus();
  const size_t missing = std::count(node.outputs.begin(), node.outputs.end(), "");
  const size_t expected = rule->second.outputs;
  const bool may_miss = expected == 3 && rule->second.linear == Linear::kInFirst;
  const bool has_all = expected == kList ? !node.outputs.empty() : node.outputs.size() == expected;
  if (has_all && (missing == 0 || may_miss)) return absl::OkStatus();
  return node.Error(absl::StrCat("expected ", expected, " tensors as outputs, found ",
                                 node.outputs.size() - missing));
}

// Ones like a value of one element, from which the gradients in updates follow.
absl::Status Translator::FindSeed() {
  if (updates_.updates.empty()) {
    return absl::InvalidArgumentError(
        "the step changes no parameter: expected a training step, as tools/pytorch/export_step.py "
        "writes it; a model for inference trains nothing");
  }
  absl::flat_hash_set<std::string> needed;
  for (const Update& update : updates_.updates) needed.insert(makers_.Origin(update.grad));
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    const Node& node = graph_.nodes[i];
    const bool is_needed =
        std::any_of(node.outputs.begin(), node.outputs.end(),
                    [&](const std::string& value) { return needed.contains(value); });
    if (!is_needed) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reads, node.Tensors());
    for (const std::string& value : reads) needed.insert(value);
    for (const std::string& value : reads) needed.insert(makers_.Origin(value));
    const bool is_like =
        node.target == "aten.ones_like.default" || node.target == "aten.full_like.default";
    if (!is_like || !HasOneElement(MetaOf(node.outputs[0]))) continue;
    if (node.target == "aten.full_like.default") {
      WEFT_ASSIGN_OR_RETURN(const double value, node.Number("fill_value"));
      if (value != 1) continue;
    }
    if (seed_ != nullptr) {
      return node.Error(absl::StrCat(
          "expected one gradient of a loss, that begins with ones like it, found this and ",
          seed_->DebugName(), ": a step with several losses is not read; add them up"));
    }
    seed_ = &node;
    WEFT_ASSIGN_OR_RETURN(const std::string loss, node.Tensor("self"));
    loss_ = makers_.Origin(loss);
    if (makers_.Of(loss_) == nullptr) {
      return node.Error("expected a loss that the step computes, found an input of it");
    }
  }
  if (seed_ == nullptr) {
    return absl::UnimplementedError(
        "expected a gradient of the loss that begins with ones like the loss (ones_like), as "
        "torch.autograd.grad makes it, found none that the updates follow from");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Translator::IsLinearInSeed(const Node& node) const {
  const auto rule = Rules().find(node.target);
  if (rule == Rules().end()) return false;
  // A number that is added.
  if (rule->second.linear == Linear::kInAll && node.Has("other") && !node.IsTensor("other")) {
    return false;
  }
  const bool is_where = absl::StartsWith(node.target, "aten.where.");
  if (is_where || node.target == "aten.masked_fill.Scalar") {
    WEFT_ASSIGN_OR_RETURN(const bool keeps_zeros, MasksWithZeros(node));
    if (!keeps_zeros) return false;
  }
  if (node.Has("reduce_op")) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, node.Text("reduce_op", ""));
    if (name != "sum" && name != "avg") return false;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reads, node.Tensors());
  size_t following = 0;
  for (const std::string& value : reads) {
    if (!Follows(value)) continue;
    ++following;
    if (!linear_.contains(makers_.Origin(value))) return false;
  }
  switch (rule->second.linear) {
    case Linear::kNot:
      return false;
    case Linear::kInAll:
      return is_where || following == reads.size();
    case Linear::kInEach:
      return following == 1;
    case Linear::kInFirst: {
      absl::string_view first = "self";
      for (const absl::string_view name : {"grad_output", "grad_out", "grad"}) {
        if (node.Has(name)) first = name;
      }
      WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(first));
      return following == 1 && Follows(value);
    }
  }
  return false;
}

absl::Status Translator::FollowSeed() {
  follows_.insert(seed_->outputs[0]);
  linear_.insert(seed_->outputs[0]);
  for (const Node& node : graph_.nodes) {
    if (&node == seed_ || Makers::HandsOn(node)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reads, node.Tensors());
    const bool follows = std::any_of(reads.begin(), reads.end(),
                                     [this](const std::string& v) { return Follows(v); });
    if (!follows) continue;
    WEFT_ASSIGN_OR_RETURN(const bool is_linear, IsLinearInSeed(node));
    for (const std::string& value : node.outputs) {
      follows_.insert(value);
      if (is_linear) linear_.insert(value);
    }
  }
  return absl::OkStatus();
}

// What the update follows from, without decay, clipping and whatever else it does: the one value of
// the parameter's shape that is linear in the gradient of the loss.
absl::StatusOr<std::string> Translator::GradientIn(const Update& update) const {
  std::set<std::string> gradients, seen;
  std::vector<std::string> values = {makers_.Origin(update.grad)};
  const std::vector<int64_t> dims = MetaOf(values[0]).dims;
  while (!values.empty()) {
    const std::string value = values.back();
    values.pop_back();
    if (!seen.insert(value).second) continue;
    if (linear_.contains(value)) {
      gradients.insert(value);
      continue;
    }
    const Node* const node = makers_.Of(value);
    if (node == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reads, node->Tensors());
    for (const std::string& read : reads) {
      if (Follows(read) && MetaOf(read).dims == dims) values.push_back(makers_.Origin(read));
    }
  }
  if (gradients.size() == 1) return *gradients.begin();
  const Node* const node = makers_.Of(update.grad);
  const std::string what = absl::StrCat(
      "parameter ", update.param,
      ": expected an update by one gradient, which is linear in the gradient of the loss, found ",
      gradients.empty() ? "none" : absl::StrJoin(gradients, " and "));
  return node == nullptr ? absl::UnimplementedError(what) : node->Error(what);
}

absl::Status Translator::FindGradients() {
  for (const Update& update : updates_.updates) {
    WEFT_ASSIGN_OR_RETURN(const std::string gradient, GradientIn(update));
    const auto [found, is_new] = param_of_gradient_.emplace(gradient, update.param);
    FindParts(gradient, update.param);
    if (is_new) continue;
    return absl::UnimplementedError(absl::StrCat("parameters ", found->second, " and ",
                                                 update.param, " have one gradient, value ",
                                                 gradient));
  }
  return absl::OkStatus();
}

void Translator::FindParts(const std::string& gradient, const std::string& param) {
  std::vector<std::string> parts = {gradient};
  const TensorMeta& meta = MetaOf(gradient);
  bool is_in_place = true;
  for (;;) {
    const Node* node;
    std::string part = makers_.Before(parts.back(), &node);
    if (part.empty() || !linear_.contains(part)) break;
    const bool is_result =
        std::any_of(graph_.results.begin(), graph_.results.end(),
                    [&](const std::string& result) { return makers_.Origin(result) == part; });
    is_in_place = is_in_place && !is_result && readers_[part].size() == 1 &&
                  MetaOf(part).dims == meta.dims && MetaOf(part).dtype == meta.dtype;
    parts.push_back(std::move(part));
  }
  for (const std::string& part : parts) param_of_part_[part] = param;
  if (is_in_place) gradient_vars_[param];
  completed_[is_in_place ? parts.back() : gradient] = param;
}

absl::flat_hash_set<const Node*> Translator::NodesFor(std::vector<std::string> values) const {
  absl::flat_hash_set<const Node*> nodes;
  while (!values.empty()) {
    const Node* const node = makers_.Of(values.back());
    values.pop_back();
    if (node == nullptr || !nodes.insert(node).second) continue;
    const absl::StatusOr<std::vector<std::string>> reads = node->Tensors();
    if (reads.ok()) values.insert(values.end(), reads->begin(), reads->end());
  }
  return nodes;
}

// For what the step leaves and returns.
void Translator::FindNeeded() {
  std::vector<std::string> values = graph_.results;
  for (const Update& update : updates_.updates) {
    values.push_back(update.grad);
    for (const std::string& value : update.averages) {
      const bool is_in_place = MetaOf(value).dtype == MetaOf(update.value).dtype;
      if (is_in_place) averaged_[value] = update.param;
      averaging_.insert(makers_.Of(value));
    }
    if (update.beta1_power.empty()) continue;
    values.push_back(update.beta1_power);
    values.push_back(update.beta2_power);
  }
  for (const Input& input : graph_.inputs) {
    if (IsComputedState(input)) values.push_back(graph_.mutations.at(input.name));
  }
  needed_ = NodesFor(std::move(values));
  for (const Node& node : graph_.nodes) {
    if (!needed_.contains(&node) || Makers::HandsOn(node)) continue;
    const absl::StatusOr<std::vector<std::string>> reads = node.Tensors();
    for (const std::string& value : reads.ok() ? *reads : std::vector<std::string>()) {
      readers_[makers_.Origin(value)].push_back(&node);
    }
  }
}

absl::Status Translator::CheckReaders() const {
  std::vector<std::string> kept = graph_.results;
  for (const auto& [name, value] : graph_.mutations) kept.push_back(value);
  for (std::string& value : kept) value = makers_.Origin(value);
  for (const Node& node : graph_.nodes) {
    const auto rule = Rules().find(node.target);
    if (!needed_.contains(&node) || rule == Rules().end() || rule->second.reader.empty()) continue;
    for (size_t i = 1; i < std::min<size_t>(node.outputs.size(), 3); ++i) {
      const auto readers = readers_.find(node.outputs[i]);
      bool is_right = std::find(kept.begin(), kept.end(), node.outputs[i]) == kept.end();
      for (const Node* reader :
           readers == readers_.end() ? std::vector<const Node*>() : readers->second) {
        is_right = is_right && reader->target == rule->second.reader;
      }
      if (is_right) continue;
      return node.Error(
          absl::StrCat("expected ", rule->second.reader, " alone to read output ", i));
    }
  }
  return absl::OkStatus();
}

// Names all operators without a rule.
absl::Status Translator::CheckRules() const {
  const Node* first = nullptr;
  std::map<std::string, int> missing;
  for (const Node& node : graph_.nodes) {
    const bool is_read = needed_.contains(&node) || averaging_.contains(&node);
    if (!is_read || Rules().count(node.target) > 0) continue;
    if (first == nullptr) first = &node;
    ++missing[node.target];
  }
  if (first == nullptr) return absl::OkStatus();
  std::vector<std::string> names;
  for (const auto& [target, count] : missing) {
    names.push_back(count == 1 ? target : absl::StrCat(target, " (", count, " nodes)"));
  }
  return first->Error(absl::StrCat("no op of Weft computes ", absl::StrJoin(names, ", "),
                                   " (docs/pytorch.md lists the operators that are read)"));
}

// --- Variables
// -------------------------------------------------------------------------------------

pb::VarDesc* Translator::DeclareVar(const std::string& name, const TensorMeta& meta) {
  names_.insert(name);
  pb::VarDesc* const var = desc_.mutable_blocks(0)->add_vars();
  var->set_name(name);
  var->mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  pb::VarType::TensorDesc* const tensor =
      var->mutable_type()->mutable_lod_tensor()->mutable_tensor();
  tensor->set_data_type(meta.dtype);
  for (const int64_t dim : meta.dims) tensor->add_dims(dim);
  return var;
}

absl::Status Translator::Declare() {
  for (const Input& input : graph_.inputs) {
    pb::VarDesc* const var = DeclareVar(input.name, graph_.tensors.at(input.value));
    vars_[input.value] = input.name;
    const bool is_data = input.kind == Input::Kind::kData;
    var->set_persistable(!is_data);
    var->set_is_parameter(input.kind == Input::Kind::kParameter);
    var->set_need_check_feed(is_data);
    var->set_stop_gradient(input.kind != Input::Kind::kParameter);
    like_.emplace(KeyOf(graph_.tensors.at(input.value)), input.name);
  }
  return absl::OkStatus();
}

bool Translator::IsDividedSeed(const std::string& value) const {
  const auto readers = readers_.find(seed_->outputs[0]);
  if (readers == readers_.end() || readers->second.size() != 1) return false;
  const Node& reader = *readers->second[0];
  return reader.nranks != 0 && reader.outputs == std::vector<std::string>{value};
}

std::string Translator::Output(const std::string& value, const TensorMeta& meta) {
  const auto averaged = averaged_.find(value);
  if (averaged != averaged_.end()) return vars_[value] = averaged->second;
  std::string name = value;
  const auto part = param_of_part_.find(value);
  const auto in_place =
      part == param_of_part_.end() ? gradient_vars_.end() : gradient_vars_.find(part->second);
  if (in_place != gradient_vars_.end() && !in_place->second.empty()) {
    return vars_[value] = in_place->second;
  }
  if (IsDividedSeed(value)) return vars_[value] = VarOf(seed_->outputs[0]);
  if (part != param_of_part_.end()) {
    const bool is_whole = in_place != gradient_vars_.end() || param_of_gradient_.contains(value);
    name = absl::StrCat(part->second, kGradSuffix, is_whole ? "" : "@RENAME@" + value);
  }
  if (value == loss_) name = "loss";
  if (value == seed_->outputs[0]) name = absl::StrCat(vars_.at(loss_), kGradSuffix);
  while (names_.contains(name)) name += "_";
  DeclareVar(name, meta);
  vars_[value] = name;
  if (in_place != gradient_vars_.end()) in_place->second = name;
  if (!meta.sizes.empty() && !Follows(value)) like_.emplace(KeyOf(meta), name);
  return name;
}

std::string Translator::KeyOf(const TensorMeta& meta) {
  std::string key = pb::VarType::Type_Name(meta.dtype);
  for (const Size& size : meta.sizes) {
    absl::StrAppend(&key, ", ", size.factor, "*", absl::StrJoin(size.symbols, "*"));
  }
  return key;
}

absl::optional<std::string> Translator::Like(const TensorMeta& meta) const {
  const auto found = like_.find(KeyOf(meta));
  if (found == like_.end()) return absl::nullopt;
  return found->second;
}

absl::StatusOr<std::string> Translator::LikeOutput(const Node& node) const {
  const absl::optional<std::string> like = Like(MetaOf(node.outputs[0]));
  if (like.has_value()) return *like;
  return node.Error("expected a value of the forward pass with the shape of this gradient");
}

absl::StatusOr<NewOp> Translator::AddUnary(const Node& node, absl::string_view type,
                                           absl::string_view argument) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, argument));
  return Add(type, {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}});
}

std::string Translator::Output(const std::string& value) { return Output(value, MetaOf(value)); }

std::string Translator::Temporary(absl::string_view suffix, const TensorMeta& meta) {
  std::string name = absl::StrCat(node_->name, "@", suffix);
  while (names_.contains(name)) name += "_";
  DeclareVar(name, meta);
  return name;
}

std::string Translator::VarOf(const std::string& value) {
  const std::string origin = makers_.Origin(value);
  const auto found = vars_.find(origin);
  if (found != vars_.end()) return found->second;
  const auto sum = row_sums_.find(origin);
  if (sum != row_sums_.end()) {
    const std::string x = VarOf(sum->second), out = Output(origin);
    std::vector<int64_t> leading(MetaOf(sum->second).dims.size() - 1);
    std::iota(leading.begin(), leading.end(), 0);
    Add("reduce_sum", {{"X", {x}}}, {{"Out", {out}}})
        .Ints("dim", leading)
        .Bool("keep_dim", true)
        .Bool("reduce_all", false);
    return out;
  }
  const auto rows = rows_.find(origin);
  if (rows != rows_.end()) {
    const std::string x = rows->second.var, out = Output(origin);
    Add("reshape2", {{"X", {x}}}, {{"Out", {out}}}).Ints("shape", MetaOf(origin).dims);
    return out;
  }
  const auto transposed = transposed_.find(origin);
  if (transposed == transposed_.end()) {
    lost_ = absl::UnimplementedError(
        absl::StrCat("value ", origin, ": no op makes it in a form that others can read"));
    return origin;
  }
  // A matrix that only products have read so far.
  const std::string x = VarOf(transposed->second), out = Output(origin);
  Add("transpose2", {{"X", {x}}}, {{"Out", {out}}}).Ints("axis", {1, 0});
  return out;
}

absl::StatusOr<std::string> Translator::Var(const Node& node, absl::string_view argument) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  return VarOf(value);
}

Translator::Operand Translator::OperandOf(const std::string& value) {
  const auto rows = rows_.find(makers_.Origin(value));
  if (rows != rows_.end()) return rows->second;
  return {VarOf(value), false, MetaOf(value)};
}

absl::StatusOr<Translator::Operand> Translator::MatrixOf(const Node& node,
                                                         absl::string_view argument) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  const auto found = transposed_.find(makers_.Origin(value));
  if (found == transposed_.end()) return OperandOf(value);
  Operand operand = OperandOf(found->second);
  operand.is_transposed = true;
  return operand;
}

Translator::Operand Translator::Plain(const Operand& operand, const std::string& value) {
  if (!operand.has_rows) return operand;
  const std::string origin = makers_.Origin(value);
  const std::string& matrix = operand.is_transposed ? transposed_.at(origin) : origin;
  return {VarOf(matrix), operand.is_transposed, MetaOf(matrix)};
}

NewOp Translator::Add(absl::string_view type, const Slots& inputs, const Slots& outputs) {
  pb::OpDesc* const op = desc_.mutable_blocks(0)->add_ops();
  op->set_type(std::string(type));
  const auto fill = [](const Slots& slots, auto* to) {
    for (const auto& [slot, args] : slots) {
      auto* const added = to->Add();
      added->set_parameter(std::string(slot));
      for (const std::string& arg : args) added->add_arguments(arg);
    }
  };
  fill(inputs, op->mutable_inputs());
  fill(outputs, op->mutable_outputs());
  NewOp added(op);
  added.Int(kOpRoleAttr, role_);
  if (node_ != nullptr && !node_->stack.empty()) {
    added.Texts("op_callstack", absl::StrSplit(node_->stack, '\n', absl::SkipWhitespace()));
  }
  return added;
}

// --- Nodes and updates
// -----------------------------------------------------------------------------

bool Translator::IsOfBags(const Node& node) const {
  const auto readers = readers_.find(node.outputs[0]);
  return readers != readers_.end() &&
         std::all_of(readers->second.begin(), readers->second.end(), [&](const Node* reader) {
           const auto reads = [&](absl::string_view argument) {
             const absl::StatusOr<std::string> value = reader->Tensor(argument);
             return value.ok() && makers_.Origin(*value) == node.outputs[0];
           };
           return absl::StartsWith(reader->target, "aten._embedding_bag") &&
                  (reads("indices") || reads("offsets"));
         });
}

absl::Status Translator::TranslateNode(const Node& node) {
  if (IsOfBags(node)) return absl::OkStatus();
  node_ = &node;
  const OpRule& rule = Rules().at(node.target);
  auto& ops = *desc_.mutable_blocks(0)->mutable_ops();
  const int num_before = ops.size();
  WEFT_RETURN_IF_ERROR((this->*rule.translate)(node));
  WEFT_RETURN_IF_ERROR(lost_);
  if (node.nranks != 0 && ops.size() > num_before) {
    NewOp(&ops[ops.size() - 1]).Int(kNumRanksAttr, node.nranks);
  }
  for (const std::string& value : node.outputs) {
    const auto gradient = completed_.find(value);
    const bool is_gradient = gradient != completed_.end();
    if (!is_gradient && value != loss_) continue;
    const std::string var = VarOf(value);
    pb::OpDesc* const writer = WriterOf(var);
    if (writer == nullptr) return node.Error("expected a value that an op computes");
    if (is_gradient) MarkPair(gradient->second, var, writer);
    for (pb::OpDesc::Attr& attr : *writer->mutable_attrs()) {
      if (value == loss_ && attr.name() == kOpRoleAttr) attr.set_i(attr.i() | kRoleLoss);
    }
  }
  return absl::OkStatus();
}

pb::OpDesc* Translator::WriterOf(const std::string& var) {
  auto& ops = *desc_.mutable_blocks(0)->mutable_ops();
  for (int i = ops.size(); i-- > 0;) {
    for (const pb::OpDesc::Var& slot : ops[i].outputs()) {
      const auto& args = slot.arguments();
      if (std::find(args.begin(), args.end(), var) != args.end()) return &ops[i];
    }
  }
  return nullptr;
}

void Translator::MarkPair(const std::string& param, const std::string& gradient, pb::OpDesc* op) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() != kOpRoleVarAttr) continue;
    attr.add_strings(param);
    attr.add_strings(gradient);
    return;
  }
  NewOp(op).Texts(kOpRoleVarAttr, {param, gradient});
}

std::string Translator::RateVariable(double rate) {
  std::string& name = rate_variables_[rate];
  if (!name.empty()) return name;
  name = "optimizer.lr";
  for (int i = 1; names_.contains(name); ++i) name = absl::StrCat("optimizer.lr_", i);
  pb::VarDesc* const var = DeclareVar(name, {pb::VarType::FP32, {1}});
  var->set_persistable(true);
  rates_[name] = rate;
  const auto schedule = graph_.schedules.find(rate);
  if (schedule == graph_.schedules.end()) return name;
  pb::VarDesc::Attr* const attr = var->add_attrs();
  attr->set_name(std::string(kScheduleAttr));
  attr->set_type(pb::STRING);
  attr->set_s(schedule->second);
  return name;
}

// What updates and states read may not be computed yet (transposed_, row_sums_): it must be before
// anything changes.
void Translator::MakeNewValues() {
  for (const Update& update : updates_.updates) VarOf(update.grad);
  for (const Input& input : graph_.inputs) {
    if (IsComputedState(input)) VarOf(graph_.mutations.at(input.name));
  }
}

// Whether the step leaves a new value in a buffer, and no update does.
bool Translator::IsComputedState(const Input& input) const {
  const auto mutation = graph_.mutations.find(input.name);
  return input.kind == Input::Kind::kBuffer && mutation != graph_.mutations.end() &&
         updates_.states.count(input.name) == 0 && !written_.contains(input.name) &&
         makers_.Origin(mutation->second) != input.value;
}

// What comes after the updates, which has written parameters in place. An op that writes a
// parameter again leaves the one before unfinished.
absl::Status Translator::AddAverages() {
  const auto& ops = desc_.blocks(0).ops();
  node_of_op_.resize(ops.size(), graph_.nodes.size());
  for (const Node& node : graph_.nodes) {
    if (!averaging_.contains(&node)) continue;
    if (needed_.contains(&node)) {
      return node.Error("expected what follows an update to depend on it alone");
    }
    const int first = ops.size();
    WEFT_RETURN_IF_ERROR(TranslateNode(node));
    node_of_op_.resize(ops.size(), &node - graph_.nodes.data());
    for (int i = first; i < ops.size(); ++i) {
      const auto writer = writer_of_averaged_.find(ops[i].outputs(0).arguments(0));
      if (writer == writer_of_averaged_.end()) continue;
      unfinished_.insert(writer->second);
      writer->second = i;
    }
  }
  node_ = nullptr;
  return absl::OkStatus();
}

absl::Status Translator::AddUpdates() {
  for (const Update& update : updates_.updates) {
    WEFT_RETURN_IF_ERROR(AddUpdate(update));
    if (update.averages.empty()) continue;
    vars_[update.value] = update.param;
    writer_of_averaged_[update.param] = desc_.blocks(0).ops_size() - 1;
  }
  return absl::OkStatus();
}

absl::Status Translator::AddUpdate(const Update& update) {
  const std::string& p = update.param;
  if (update.rule == Update::Rule::kComputed) {
    Add("assign", {{"X", {VarOf(update.grad)}}}, {{"Out", {p}}});
    return absl::OkStatus();
  }
  Slots inputs = {{"Grad", {VarOf(update.grad)}},
                  {"LearningRate", {RateVariable(update.rate)}},
                  {"Param", {p}}};
  Slots outputs = {{"ParamOut", {p}}};
  switch (update.rule) {
    case Update::Rule::kComputed:
      break;
    case Update::Rule::kAdagrad:
      inputs.insert(inputs.begin() + 2, {"Moment", {update.square}});
      outputs.insert(outputs.begin(), {"MomentOut", {update.square}});
      Add("adagrad", inputs, outputs).Float("epsilon", update.epsilon);
      break;
    case Update::Rule::kSgd:
      Add("sgd", inputs, outputs);
      break;
    case Update::Rule::kMomentum:
      inputs.push_back({"Velocity", {update.velocity}});
      outputs.push_back({"VelocityOut", {update.velocity}});
      Add("momentum", inputs, outputs).Float("mu", update.mu).Bool("use_nesterov", update.nesterov);
      break;
    case Update::Rule::kAdam:
    case Update::Rule::kAdamW: {
      const std::string b1 = VarOf(update.beta1_power), b2 = VarOf(update.beta2_power);
      inputs.insert(inputs.end(), {{"Beta1Pow", {b1}},
                                   {"Beta2Pow", {b2}},
                                   {"Moment1", {update.mean}},
                                   {"Moment2", {update.square}}});
      outputs.insert(outputs.end(), {{"Beta1PowOut", {b1}},
                                     {"Beta2PowOut", {b2}},
                                     {"Moment1Out", {update.mean}},
                                     {"Moment2Out", {update.square}}});
      const bool decays = update.rule == Update::Rule::kAdamW;
      NewOp op = Add(decays ? "adamw" : "adam", inputs, outputs);
      op.Float("beta1", update.beta1)
          .Float("beta2", update.beta2)
          .Float("epsilon", update.epsilon)
          .Bool("use_global_beta_pow", true);
      if (decays) op.Float("coeff", update.decay).Bool("with_decay", true);
      break;
    }
  }
  return absl::OkStatus();
}

// State that no update writes, such as counters of steps. New values may follow from each other's
// old ones: all are in variables of their own before the first state changes.
absl::Status Translator::AddMutations() {
  absl::flat_hash_set<std::string> inputs;
  for (const Input& input : graph_.inputs) inputs.insert(input.name);
  for (const Input& input : graph_.inputs) {
    if (!IsComputedState(input)) continue;
    const std::string from = VarOf(graph_.mutations.at(input.name));
    if (inputs.contains(from)) {
      return absl::UnimplementedError(absl::StrCat("state ", input.name, ": becomes ", from,
                                                   ", an input of the step: expected a value that "
                                                   "the step computes"));
    }
    Add("assign", {{"X", {from}}}, {{"Out", {input.name}}});
  }
  return absl::OkStatus();
}

}  // namespace weft::pt2
