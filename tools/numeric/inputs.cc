#include "tools/numeric/inputs.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "proto/all_ops.h"
#include "tools/numeric/report.h"

namespace weft {
namespace {

// The value of an unknown dimension of data other than the batch.
constexpr int64_t kOtherDim = 4;

absl::Status ChooseDims(bool is_data, const FeedLayout& layout, int nranks, int64_t batch,
                        Dims* dims) {
  if (!is_data && !dims->empty() && dims->front() == -1) {
    return absl::FailedPreconditionError(
        "it is read and nothing writes it, but it is not marked as data (need_check_feed), so it "
        "is unknown whether ranks share it");
  }
  const bool is_split = is_data && layout.axis.has_value();
  const size_t axis = is_split ? *layout.axis : 0;
  const bool is_any = is_split && axis < dims->size() && (*dims)[axis] == -1;
  if (is_split && !is_any && nranks > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected -1 as dimension ", axis, ", found ", DimsToString(*dims),
                     ": one rank cannot take the batches of ", nranks));
  }
  if (is_any) (*dims)[axis] = batch;
  std::replace(dims->begin(), dims->end(), int64_t{-1}, kOtherDim);
  return absl::OkStatus();
}

int64_t RowAt(NumericData::Order order, int64_t row, int64_t rows) {
  switch (order) {
    case NumericData::Order::kAsMade:
      return row;
    case NumericData::Order::kReversed:
      return rows - 1 - row;
    case NumericData::Order::kEvenOnesFirst:
      return row < (rows + 1) / 2 ? 2 * row : 2 * (row - (rows + 1) / 2) + 1;
  }
  return row;
}

// Finds data that end up in slots of class or row indices: their values must be below a limit.
class DataLimits {
 public:
  explicit DataLimits(const Program& program) : program_(program) {
    for (VarId id : program.block(0).vars()) {
      const Var var = program.var(id);
      sources_[var.name_symbol()] = {var.name_symbol()};
    }
    for (const Op& op : AllOps(program)) Visit(op);
  }

  // The exclusive limit of a variable's elements, which are 0 or more; none: unlimited.
  absl::optional<int64_t> Of(absl::string_view name) const {
    const auto it = limits_.find(program_.FindSymbol(name));
    if (it == limits_.end()) return absl::nullopt;
    return it->second;
  }

 private:
  void Visit(const Op& op) {
    const absl::Span<const Symbol> ids = op.Input("Ids"), table = op.Input("W");
    if (!ids.empty() && !table.empty()) Limit(ids, DimOf(op, table[0], 0));
    const absl::Span<const Symbol> labels = op.Input("Label"), logits = op.Input("Logits");
    if (!labels.empty()) {
      // Labels that are not class indices are 0 or 1, or probabilities.
      const bool are_classes = !logits.empty() && !op.BoolAttr("soft_label").value_or(false);
      Limit(labels, are_classes ? DimOf(op, logits[0], op.IntAttr("axis").value_or(-1)) : 2);
    }
    // Integers computed from integers: reshaped, concatenated, cast.
    for (Symbol out : op.output_args()) {
      const absl::optional<TensorType> type = TypeOf(op, out);
      if (!type.has_value() || IsFloating(type->dtype)) continue;
      std::set<Symbol>& of_out = sources_[out];
      for (Symbol in : op.input_args()) {
        const auto it = sources_.find(in);
        if (it == sources_.end() || in == out) continue;
        of_out.insert(it->second.begin(), it->second.end());
      }
    }
  }

  void Limit(absl::Span<const Symbol> names, int64_t below) {
    if (below <= 0) return;
    for (Symbol name : names) {
      for (Symbol source : sources_[name]) {
        const auto [it, is_new] = limits_.emplace(source, below);
        if (!is_new) it->second = std::min(it->second, below);
      }
    }
  }

  absl::optional<TensorType> TypeOf(const Op& op, Symbol name) const {
    const VarId var = program_.block(op.block()).Resolve(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  }

  int64_t DimOf(const Op& op, Symbol name, int64_t axis) const {
    const absl::optional<TensorType> type = TypeOf(op, name);
    if (!type.has_value()) return -1;
    const int64_t rank = static_cast<int64_t>(type->dims.size());
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? type->dims[axis] : -1;
  }

  const Program& program_;
  absl::flat_hash_map<Symbol, std::set<Symbol>> sources_;
  absl::flat_hash_map<Symbol, int64_t> limits_;
};

}  // namespace

bool IsTensorOfRoot(const Plan& plan, size_t v) {
  const Plan::Variable& variable = plan.variables[v];
  return plan.FindVariable(variable.name) == static_cast<int>(v) && variable.declared.has_value() &&
         variable.declared->kind == TensorType::Kind::kDense;
}

absl::StatusOr<NumericData> NumericData::Of(const Program& program, const Plan& plan, int nranks,
                                            int64_t batch, const FeedLayouts& layouts,
                                            ElementBudget* budget) {
  NumericData data;
  data.layouts_ = layouts;
  const DataLimits limits(program);
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    if (variable.first_reader < 0 || !IsTensorOfRoot(plan, v)) continue;
    if (variable.persistable && !variable.is_feed) continue;
    const auto layout = layouts.find(variable.name);
    Feed feed{variable.name, *variable.declared,
              layout == layouts.end() ? FeedLayout::Whole() : layout->second,
              limits.Of(variable.name)};
    WEFT_RETURN_IF_ERROR(
        Annotate(absl::StrCat("data variable ", variable.name),
                 ChooseDims(variable.is_feed, feed.layout, nranks, batch, &feed.type.dims)));
    WEFT_RETURN_IF_ERROR(budget->Take(variable.name, feed.type.dims));
    data.feeds_.push_back(std::move(feed));
  }
  return data;
}

FeedSource NumericData::Source(Order order) const {
  FeedSource source;
  source.layouts = layouts_;
  for (const Feed& feed : feeds_) source.variables.push_back(feed.name);
  source.read = [this, order](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const Feed& feed : feeds_) {
      WEFT_ASSIGN_OR_RETURN(Tensor tensor, Make(feed, step, order));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  };
  return source;
}

absl::StatusOr<Tensor> NumericData::Make(const Feed& feed, int64_t step, Order order) {
  const uint64_t hash = MixBits(HashOfName(feed.name) + step);
  // Integers without a known limit are 0 or 1.
  const bool is_limited = feed.limit.has_value() || !IsFloating(feed.type.dtype);
  const uint64_t limit = feed.limit.value_or(2);
  // Samples lie along the axis that is split.
  const Dims& dims = feed.type.dims;
  int64_t rows = 1, row_size = std::max<int64_t>(1, NumElements(dims));
  if (feed.layout.axis.has_value()) {
    rows = dims[*feed.layout.axis];
    row_size = 1;
    for (size_t i = *feed.layout.axis + 1; i < dims.size(); ++i) row_size *= dims[i];
  }
  return MakeTensor(feed.name, feed.type, [=](int64_t i) {
    const int64_t row = RowAt(order, i / row_size % rows, rows);
    const int64_t around = i / row_size / rows;
    const uint64_t random = MixBits(hash + (around * rows + row) * row_size + i % row_size);
    return is_limited ? static_cast<double>(random % limit) : SmallNumber(random);
  });
}

LearningVariables FindLearningVariables(const Program& program) {
  LearningVariables found;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.is_parameter()) found.parameters.emplace(std::string(var.name()), var.name());
  }
  for (const ParamUpdate& update : FindUpdates(program)) {
    const std::string param(program.name(update.param));
    found.parameters.emplace(param, param);
    // Holds the same values with higher precision.
    if (update.master.valid()) found.parameters[std::string(program.name(update.master))] = param;
    for (Symbol state : update.states) found.optimizer_states.emplace(program.name(state));
    for (Symbol rate : program.op(update.op).Input("LearningRate")) {
      found.rates.emplace(program.name(rate));
    }
  }
  return found;
}

absl::StatusOr<std::map<std::string, Tensor>> MakeStart(const ConstProgramPair& original,
                                                        RunOptions run, const Plan& plan,
                                                        const LearningVariables& variables,
                                                        const NumericData& data,
                                                        ElementBudget* budget) {
  std::map<std::string, Tensor> start;
  std::map<std::string, Tensor> from_startup;
  if (original.startup != nullptr) {
    RunInputs inputs;
    inputs.main = original.main;
    inputs.startup = original.startup;
    inputs.feeds = data.Source();
    run.steps = 0;
    WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, run));
    from_startup = std::move(result.persistables);
  }
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    if (!IsTensorOfRoot(plan, v) || !variable.persistable || variable.is_feed) continue;
    const std::string& name = variable.name;
    const TensorType& type = *variable.declared;
    const auto parameter = variables.parameters.find(name);
    const auto started = from_startup.find(name);
    absl::StatusOr<Tensor> tensor;
    if (parameter != variables.parameters.end() && IsFloating(type.dtype)) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      tensor = MakeParameter(parameter->second, type);
    } else if (variables.rates.count(name) > 0 && !variable.is_written && IsFloating(type.dtype)) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      const bool is_given = started != from_startup.end() && started->second.size() > 0;
      const double rate = is_given ? ElementAt(started->second, 0) : kDefaultLearningRate;
      tensor = MakeTensor(name, type, [=](int64_t) { return RoundedRate(rate); });
    } else if (started != from_startup.end()) {
      tensor = started->second;
    } else if (original.startup == nullptr) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      tensor = MakeTensor(name, type, [](int64_t) { return 0; });
    } else {
      continue;  // the run reports it if it is read
    }
    WEFT_RETURN_IF_ERROR(tensor.status());
    start.emplace(name, *std::move(tensor));
  }
  return start;
}

}  // namespace weft
