#include "tools/numeric_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/plan.h"
#include "executor/runner.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/analysis/updates.h"

namespace weft {
namespace {

constexpr char kOriginal[] = "original program";
constexpr char kRewritten[] = "rewritten program";
constexpr int64_t kRowsPerRank = 4;
// An unknown dimension of data that is not the batch.
constexpr int64_t kOtherDim = 4;
// Where the startup program does not say.
constexpr double kLearningRate = 1.0 / 1024;

// --- Values -------------------------------------------------------------------------------------

// Well mixed bits, the same everywhere (splitmix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t HashOf(absl::string_view name) {
  uint64_t hash = name.size();
  for (char c : name) hash = Mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

template <typename T, typename Value>
void FillAs(const Value& value, Tensor* tensor) {
  T* data = tensor->data<T>();
  for (int64_t i = 0; i < tensor->size(); ++i) data[i] = static_cast<T>(value(i));
}

// A tensor whose element i is value(i), a number that all these types can hold.
template <typename Value>
absl::StatusOr<Tensor> MakeTensor(absl::string_view name, const TensorType& type,
                                  const Value& value) {
  Tensor tensor;
  const auto fill = [&](auto zero) {
    tensor.Resize(type.dtype, type.dims);
    FillAs<decltype(zero)>(value, &tensor);
  };
  switch (type.dtype) {
    case DType::kFloat32:
      fill(0.0f);
      return tensor;
    case DType::kFloat64:
      fill(0.0);
      return tensor;
    case DType::kInt32:
      fill(int32_t{0});
      return tensor;
    case DType::kInt64:
      fill(int64_t{0});
      return tensor;
    case DType::kBool:
      fill(false);
      return tensor;
    default:
      return absl::UnimplementedError(absl::StrCat(
          "variable ", name, ": no values are made for element type ", DTypeName(type.dtype)));
  }
}

// -2, -1, 1 or 2: no zeros, which would hide what they are multiplied with.
double SmallNumber(uint64_t random) {
  constexpr double kNumbers[] = {-2, -1, 1, 2};
  return kNumbers[random % 4];
}

// Small numbers, divided so that a product with them is about as large as what is multiplied.
absl::StatusOr<Tensor> MakeParameter(absl::string_view name, const TensorType& type) {
  const double inputs = type.dims.size() < 2 ? 1 : static_cast<double>(type.dims[0]);
  const double scale = std::exp2(-std::ceil(std::log2(std::max(1.0, inputs)) / 2));
  const uint64_t hash = HashOf(name);
  return MakeTensor(name, type, [=](int64_t i) { return scale * SmallNumber(Mix(hash + i)); });
}

// The power of two nearest to a learning rate, whose size goes with the optimizer.
double RoundedRate(double rate) {
  if (!(rate > 0) || !std::isfinite(rate)) return kLearningRate;
  return std::exp2(std::round(std::log2(rate)));
}

absl::StatusOr<Tensor> MakeConstant(absl::string_view name, const TensorType& type, double value) {
  return MakeTensor(name, type, [=](int64_t) { return value; });
}

double ValueAt(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return tensor.data<float>()[i];
    case DType::kFloat64:
      return tensor.data<double>()[i];
    case DType::kInt32:
      return tensor.data<int32_t>()[i];
    case DType::kInt64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    default:
      return static_cast<const uint8_t*>(tensor.raw())[i];
  }
}

// How two tensors of one type differ: where most, and by how much of the largest element.
struct TensorDifference {
  int64_t place = 0;
  double expected = 0, found = 0;
  double relative = 0;
};

// None where all elements are equal (0 and -0 are).
absl::optional<TensorDifference> Compare(const Tensor& expected, const Tensor& found) {
  double largest = 0;
  absl::optional<TensorDifference> most;
  double size_of_most = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = ValueAt(expected, i), b = ValueAt(found, i);
    largest = std::max({largest, std::abs(a), std::abs(b)});
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double size = std::abs(a - b);
    if (most.has_value() && !(size > size_of_most) && !std::isnan(size)) continue;
    most = TensorDifference{i, a, b, 0};
    size_of_most = size;
    if (!std::isfinite(size)) break;
  }
  if (most.has_value()) most->relative = size_of_most / largest;
  if (most.has_value() && !std::isfinite(size_of_most)) most->relative = HUGE_VAL;
  return most;
}

Dims IndexOf(int64_t place, const Dims& dims) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = place % dims[d];
    place /= dims[d];
  }
  return index;
}

// --- Ranges -------------------------------------------------------------------------------------

// Which data end up in slots that take numbers of classes or rows: the numbers have to be below.
class DataLimits {
 public:
  explicit DataLimits(const Program& program) : program_(program) {
    for (VarId id : program.block(0).vars()) {
      const Var var = program.var(id);
      sources_[var.name_symbol()] = {var.name_symbol()};
    }
    for (int block = 0; block < program.num_blocks(); ++block) {
      for (OpId id : program.block(block).ops()) Visit(program.op(id));
    }
  }

  // What the elements of a variable have to be below, 0 or more; none: anything goes.
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
      // Labels that are no numbers of classes are 0 or 1, or probabilities.
      const bool are_classes = !logits.empty() && !BoolAttr(op, "soft_label");
      Limit(labels, are_classes ? DimOf(op, logits[0], IntAttr(op, "axis", -1)) : 2);
    }
    // Integers of integers: reshaped, joined, cast.
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

  static bool BoolAttr(const Op& op, absl::string_view name) {
    const auto attr = op.FindAttr(name);
    return attr.has_value() && attr->b();
  }

  const Program& program_;
  absl::flat_hash_map<Symbol, std::set<Symbol>> sources_;
  absl::flat_hash_map<Symbol, int64_t> limits_;
};

// --- The check ----------------------------------------------------------------------------------

using Tensors = std::map<std::string, Tensor>;

// Ends a run that has shown a difference.
absl::Status Enough() { return absl::CancelledError("a difference was found"); }

class NumericChecker {
 public:
  NumericChecker(const NumericPrograms& original, const NumericPrograms& rewritten,
                 const NumericOptions& options)
      : original_(original), rewritten_(rewritten), options_(options) {
    report_.nranks = options.nranks;
    report_.steps = options.steps;
    report_.batch = kRowsPerRank * options.nranks;
  }

  absl::StatusOr<NumericReport> Check() {
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, Prepare()));
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, RunOriginal()));
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, MeasureRounding()));
    WEFT_RETURN_IF_ERROR(Annotate(kRewritten, RunRewritten()));
    for (const std::string& name : fetch_) {
      if (own_to_ranks_.count(name) > 0) {
        report_.own_to_ranks.push_back(name);
      } else if (rough_.count(name) > 0) {
        report_.rough.push_back(name);
      } else {
        report_.compared.push_back(name);
      }
    }
    if (report_.compared.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          kOriginal, ": no variable can be compared: each rank has its own, or rounding alone ",
          "makes more than ", kMaxNumericTolerance, " of a difference"));
    }
    return std::move(report_);
  }

 private:
  // --- What both programs start from ---

  absl::Status Prepare() {
    PlanOptions plan_options;
    plan_options.kernels = options_.kernels;
    WEFT_ASSIGN_OR_RETURN(const Plan plan, Plan::Build(*original_.main, plan_options));
    FindParametersAndRates();
    WEFT_RETURN_IF_ERROR(FindFeeds(plan));
    WEFT_RETURN_IF_ERROR(MakeStart(plan));
    for (size_t v = 0; v < plan.variables().size(); ++v) {
      const Plan::Variable& variable = plan.variables()[v];
      if (!IsTensorOfRoot(plan, v) || !variable.persistable || !variable.is_written) continue;
      fetch_.push_back(variable.name);
    }
    std::sort(fetch_.begin(), fetch_.end());
    return absl::OkStatus();
  }

  // Variables of blocks may have the names of others.
  static bool IsTensorOfRoot(const Plan& plan, size_t v) {
    const Plan::Variable& variable = plan.variables()[v];
    return plan.FindVariable(variable.name) == static_cast<int>(v) &&
           variable.declared.has_value() && variable.declared->layout == TensorType::Layout::kDense;
  }

  void FindParametersAndRates() {
    const Program& program = *original_.main;
    for (VarId id : program.block(0).vars()) {
      const Var var = program.var(id);
      if (var.is_parameter()) parameters_.emplace(std::string(var.name()), var.name());
    }
    for (const ParamUpdate& update : FindUpdates(program)) {
      const std::string param(program.name(update.param));
      parameters_.emplace(param, param);
      // Holds the same values, more precisely.
      if (update.master.valid()) parameters_[std::string(program.name(update.master))] = param;
      for (Symbol state : update.states) optimizer_states_.emplace(program.name(state));
    }
    OpTraits traits(program);
    for (int block = 0; block < program.num_blocks(); ++block) {
      for (OpId id : program.block(block).ops()) {
        const Op op = program.op(id);
        if (!traits.Has(op, Trait::kOptimizer)) continue;
        for (Symbol rate : op.Input("LearningRate")) rates_.emplace(program.name(rate));
      }
    }
  }

  absl::Status Count(absl::string_view name, const Dims& dims) {
    const int64_t elements = NumElements(dims);
    if (elements >= 0 && elements <= kMaxNumericElements - num_elements_) {
      num_elements_ += elements;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("variable ", name, ": with ",
                                                     DimsToString(dims), ", more than ",
                                                     kMaxNumericElements, " elements to make up"));
  }

  absl::Status FindFeeds(const Plan& plan) {
    const DataLimits limits(*original_.main);
    for (size_t v = 0; v < plan.variables().size(); ++v) {
      const Plan::Variable& variable = plan.variables()[v];
      if (variable.first_reader < 0 || !IsTensorOfRoot(plan, v)) continue;
      if (variable.persistable && !variable.is_feed) continue;
      Feed feed{variable.name, *variable.declared, variable.is_feed, limits.Of(variable.name)};
      WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("data variable ", variable.name),
                                    ChooseDims(variable.is_feed, &feed.type.dims)));
      WEFT_RETURN_IF_ERROR(Count(variable.name, feed.type.dims));
      feeds_.push_back(std::move(feed));
    }
    return absl::OkStatus();
  }

  // `is_split`: each rank gets a part.
  absl::Status ChooseDims(bool is_split, Dims* dims) const {
    const bool is_any = !dims->empty() && dims->front() == -1;
    if (!is_split && is_any) {
      return absl::FailedPreconditionError(
          "it is read and nothing writes it, but it is not marked as data (need_check_feed), so "
          "that nobody knows whether ranks share it");
    }
    if (is_split && !is_any && options_.nranks > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("expected a first dimension of -1, found ", DimsToString(*dims),
                       ": one rank cannot take the batches of ", options_.nranks));
    }
    if (is_any) dims->front() = report_.batch;
    std::replace(dims->begin(), dims->end(), int64_t{-1}, kOtherDim);
    return absl::OkStatus();
  }

  // The samples of a batch, as they are made, or in orders that add them up in another way.
  enum class Order { kAsMade, kReversed, kEvenOnesFirst };

  static int64_t RowAt(Order order, int64_t row, int64_t rows) {
    switch (order) {
      case Order::kAsMade:
        return row;
      case Order::kReversed:
        return rows - 1 - row;
      case Order::kEvenOnesFirst:
        return row < (rows + 1) / 2 ? 2 * row : 2 * (row - (rows + 1) / 2) + 1;
    }
    return row;
  }

  FeedSource Feeds(Order order = Order::kAsMade) const {
    FeedSource source;
    for (const Feed& feed : feeds_) source.variables.push_back(feed.name);
    source.read = [this, order](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
      std::vector<Tensor> tensors;
      for (const Feed& feed : feeds_) {
        WEFT_ASSIGN_OR_RETURN(Tensor tensor, MakeData(feed, step, order));
        tensors.push_back(std::move(tensor));
      }
      return tensors;
    };
    return source;
  }

  struct Feed {
    std::string name;
    TensorType type;  // of the whole batch
    bool is_split;    // over the ranks, by its first dimension
    absl::optional<int64_t> limit;
  };

  static absl::StatusOr<Tensor> MakeData(const Feed& feed, int64_t step, Order order) {
    const uint64_t hash = Mix(HashOf(feed.name) + step);
    // Integers of which nobody says how large they may be: 0 or 1.
    const bool is_limited = feed.limit.has_value() || !IsFloating(feed.type.dtype);
    const uint64_t limit = feed.limit.value_or(2);
    const int64_t rows = feed.is_split && !feed.type.dims.empty() ? feed.type.dims[0] : 1;
    const int64_t row_size = std::max<int64_t>(1, NumElements(feed.type.dims) / rows);
    return MakeTensor(feed.name, feed.type, [=](int64_t i) {
      const int64_t row = RowAt(order, i / row_size, rows);
      const uint64_t random = Mix(hash + row * row_size + i % row_size);
      return is_limited ? static_cast<double>(random % limit) : SmallNumber(random);
    });
  }

  absl::Status MakeStart(const Plan& plan) {
    Tensors from_startup;
    if (original_.startup != nullptr) {
      RunInputs inputs;
      inputs.main = original_.main;
      inputs.startup = original_.startup;
      inputs.feeds = Feeds();
      RunOptions run = RunOptionsFor(1);
      run.steps = 0;
      WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, run));
      from_startup = std::move(result.persistables);
    }
    for (size_t v = 0; v < plan.variables().size(); ++v) {
      const Plan::Variable& variable = plan.variables()[v];
      if (!IsTensorOfRoot(plan, v) || !variable.persistable || variable.is_feed) continue;
      const std::string& name = variable.name;
      const TensorType& type = *variable.declared;
      const auto parameter = parameters_.find(name);
      const auto started = from_startup.find(name);
      absl::StatusOr<Tensor> tensor;
      if (parameter != parameters_.end() && IsFloating(type.dtype)) {
        WEFT_RETURN_IF_ERROR(Count(name, type.dims));
        tensor = MakeParameter(parameter->second, type);
      } else if (rates_.count(name) > 0 && !variable.is_written && IsFloating(type.dtype)) {
        WEFT_RETURN_IF_ERROR(Count(name, type.dims));
        const bool is_given = started != from_startup.end() && started->second.size() > 0;
        const double rate = is_given ? ValueAt(started->second, 0) : kLearningRate;
        tensor = MakeConstant(name, type, RoundedRate(rate));
      } else if (started != from_startup.end()) {
        tensor = started->second;
      } else if (original_.startup == nullptr) {
        WEFT_RETURN_IF_ERROR(Count(name, type.dims));
        tensor = MakeConstant(name, type, 0);
      } else {
        continue;  // the run tells, if it is read
      }
      WEFT_RETURN_IF_ERROR(tensor.status());
      start_.emplace(name, *std::move(tensor));
    }
    return absl::OkStatus();
  }

  // --- The runs ---

  RunOptions RunOptionsFor(int nranks) const {
    RunOptions run;
    run.kernels = options_.kernels;
    run.ranks = nranks;
    run.steps = options_.steps;
    run.timeout_s = options_.timeout_s;
    // The comparison shows it.
    run.allow_unsynchronized = true;
    return run;
  }

  // What the original leaves in fetch_ after each step.
  absl::Status RunOnOneRank(Order order, std::vector<std::vector<Tensor>>* values) const {
    RunInputs inputs;
    inputs.main = original_.main;
    inputs.startup = original_.startup;
    inputs.params = &start_;
    inputs.feeds = Feeds(order);
    inputs.on_result = [values](const StepResult& result) {
      values->push_back(result.values);
      return absl::OkStatus();
    };
    RunOptions run = RunOptionsFor(1);
    run.fetch = fetch_;
    return RunProgram(inputs, run).status();
  }

  absl::Status RunOriginal() {
    if (fetch_.empty()) return NothingChanges();
    WEFT_RETURN_IF_ERROR(RunOnOneRank(Order::kAsMade, &expected_));
    size_t changed = 0;
    for (size_t i = 0; i < fetch_.size(); ++i) {
      if (parameters_.count(fetch_[i]) == 0) continue;
      const auto before = start_.find(fetch_[i]);
      const bool is_changed =
          before == start_.end() || Compare(before->second, expected_.back()[i]).has_value();
      changed += is_changed ? 1 : 0;
      if (!is_changed) report_.unchanged.push_back(fetch_[i]);
    }
    return changed == 0 ? NothingChanges() : absl::OkStatus();
  }

  absl::Status MeasureRounding() {
    rounding_.assign(expected_.size(), std::vector<double>(fetch_.size(), 0));
    for (Order order : {Order::kReversed, Order::kEvenOnesFirst}) {
      std::vector<std::vector<Tensor>> values;
      WEFT_RETURN_IF_ERROR(RunOnOneRank(order, &values));
      for (size_t step = 0; step < values.size(); ++step) {
        for (size_t i = 0; i < fetch_.size(); ++i) {
          const auto difference = Compare(expected_[step][i], values[step][i]);
          if (!difference.has_value()) continue;
          rounding_[step][i] = std::max(rounding_[step][i], difference->relative);
        }
      }
    }
    return absl::OkStatus();
  }

  double ToleranceOf(int64_t step, size_t i) const {
    return std::max(kNumericTolerance, kRoundingFactor * rounding_[step][i]);
  }

  absl::Status NothingChanges() const {
    return absl::FailedPreconditionError(
        absl::StrCat("no parameter changes in ", options_.steps,
                     " steps, so that there is nothing to compare; more steps may help"));
  }

  absl::Status RunRewritten() {
    const Program& program = *rewritten_.main;
    const auto keeps = [&](const std::string& name) {
      const Symbol symbol = program.FindSymbol(name);
      const VarId var = symbol.valid() ? program.block(0).FindVar(symbol) : VarId();
      return var.valid() && program.var(var).persistable();
    };
    Tensors start;
    for (const auto& [name, tensor] : start_) {
      if (keeps(name)) start.emplace(name, tensor);
    }
    for (const std::string& name : fetch_) {
      if (keeps(name)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "variable ", name, ": the original keeps it from step to step, but it is not there"));
    }
    RunInputs inputs;
    inputs.main = &program;
    inputs.startup = rewritten_.startup;
    inputs.params = &start;
    inputs.feeds = Feeds();
    inputs.on_result = [this](const StepResult& result) {
      found_.push_back(result.values);
      if (result.rank + 1 < options_.nranks) return absl::OkStatus();
      CompareStep(result.step);
      found_.clear();
      return report_.IsEqual() ? absl::OkStatus() : Enough();
    };
    RunOptions run = RunOptionsFor(options_.nranks);
    run.fetch = fetch_;
    const absl::Status status = RunProgram(inputs, run).status();
    return report_.IsEqual() ? status : absl::OkStatus();
  }

  // --- The comparison ---

  void CompareStep(int64_t step) {
    for (size_t i = 0; i < fetch_.size(); ++i) {
      if (own_to_ranks_.count(fetch_[i]) > 0) continue;
      const absl::optional<NumericReport::Difference> among_ranks = CompareRanks(step, i);
      if (among_ranks.has_value() && !IsReplicated(fetch_[i])) {
        own_to_ranks_.insert(fetch_[i]);
        continue;
      }
      bool is_told = rough_.count(fetch_[i]) > 0;
      for (int rank = 0; rank < options_.nranks && !is_told; ++rank) {
        is_told = CompareRank(step, rank, i);
      }
      const bool is_wrong =
          !report_.differences.empty() && report_.differences.back().variable == fetch_[i];
      if (among_ranks.has_value() && !is_wrong) report_.differences.push_back(*among_ranks);
    }
  }

  // Whether all ranks have to have the same.
  bool IsReplicated(const std::string& name) const {
    return parameters_.count(name) > 0 || optimizer_states_.count(name) > 0;
  }

  NumericReport::Difference Describe(int64_t step, int rank, size_t i,
                                     const TensorDifference& found) const {
    NumericReport::Difference difference;
    difference.variable = fetch_[i];
    difference.is_parameter = parameters_.count(fetch_[i]) > 0;
    difference.step = step;
    difference.rank = rank;
    difference.index = IndexOf(found.place, expected_[step][i].dims());
    difference.expected = found.expected;
    difference.found = found.found;
    difference.relative = found.relative;
    difference.of_original = rounding_[step][i];
    return difference;
  }

  // The first rank that has not what rank 0 has, to the bit.
  absl::optional<NumericReport::Difference> CompareRanks(int64_t step, size_t i) const {
    for (int rank = 1; rank < options_.nranks; ++rank) {
      const absl::optional<TensorDifference> found = Compare(found_[0][i], found_[rank][i]);
      if (!found.has_value()) continue;
      NumericReport::Difference difference = Describe(step, rank, i, *found);
      difference.is_among_ranks = true;
      return difference;
    }
    return absl::nullopt;
  }

  // True where the variable is wrong, or it cannot be told.
  bool CompareRank(int64_t step, int rank, size_t i) {
    const absl::optional<TensorDifference> found = Compare(expected_[step][i], found_[rank][i]);
    if (!found.has_value()) return false;
    NumericReport::Difference difference = Describe(step, rank, i, *found);
    if (difference.relative > ToleranceOf(step, i)) {
      report_.differences.push_back(std::move(difference));
      return true;
    }
    if (difference.relative > kMaxNumericTolerance) {
      rough_.insert(fetch_[i]);
      return true;
    }
    absl::optional<NumericReport::Difference>& largest = report_.largest_rounding;
    if (!largest.has_value() || largest->relative < difference.relative) largest = difference;
    return false;
  }

  const NumericPrograms original_, rewritten_;
  const NumericOptions options_;
  std::map<std::string, std::string, std::less<>> parameters_;  // and whose values they hold
  std::set<std::string, std::less<>> optimizer_states_, rates_;
  std::vector<Feed> feeds_;
  int64_t num_elements_ = 0;
  Tensors start_;
  std::vector<std::string> fetch_;
  std::vector<std::vector<Tensor>> expected_;  // by step
  std::vector<std::vector<double>> rounding_;  // of the original itself, by step
  std::vector<std::vector<Tensor>> found_;     // by rank, in the step that is under way
  std::set<std::string> own_to_ranks_, rough_;
  NumericReport report_;
};

}  // namespace

absl::StatusOr<NumericReport> CheckNumerically(const NumericPrograms& original,
                                               const NumericPrograms& rewritten,
                                               const NumericOptions& options) {
  return NumericChecker(original, rewritten, options).Check();
}

std::string NumericReportText(const NumericReport& report) {
  std::string text =
      absl::StrCat(report.steps, report.steps == 1 ? " step on " : " steps on ", report.nranks,
                   report.nranks == 1 ? " rank" : " ranks", ", batch ", report.batch, ": ");
  if (!report.IsEqual()) {
    absl::StrAppend(&text, "different\n");
  } else {
    absl::StrAppend(&text, report.compared.size(),
                    report.compared.size() == 1 ? " variable" : " variables");
    if (report.largest_rounding.has_value()) {
      const NumericReport::Difference& most = *report.largest_rounding;
      const bool is_small = most.relative <= kNumericTolerance;
      absl::StrAppendFormat(&text,
                            " equal within %s, where results are rounded: %s differs most, by "
                            "%.2g of its largest element, after step %d%s\n",
                            is_small ? "1e-5" : "the rounding of the original", most.variable,
                            most.relative, most.step,
                            is_small ? ""
                                     : absl::StrFormat("; the original itself by %.2g, with its "
                                                       "batch in another order",
                                                       most.of_original));
    } else {
      absl::StrAppend(&text, " equal bit by bit\n");
    }
  }
  for (const NumericReport::Difference& difference : report.differences) {
    const std::string variable =
        absl::StrCat(difference.is_parameter ? "parameter " : "state ", difference.variable);
    const std::string index = DimsToString(difference.index);
    if (difference.is_among_ranks) {
      absl::StrAppendFormat(&text,
                            "  %s is not the same on all ranks after step %d: rank 0 has %.9g, "
                            "rank %d has %.9g at %s\n",
                            variable, difference.step, difference.expected, difference.rank,
                            difference.found, index);
    } else {
      absl::StrAppendFormat(
          &text, "  %s, rank %d, after step %d: expected %.9g, found %.9g at %s\n", variable,
          difference.rank, difference.step, difference.expected, difference.found, index);
    }
  }
  const auto list = [&](absl::string_view what, const std::vector<std::string>& names) {
    if (!names.empty()) absl::StrAppend(&text, "  ", what, absl::StrJoin(names, ", "), "\n");
  };
  list("not compared, as each rank has its own: ", report.own_to_ranks);
  list("not shown, as rounding makes as much of a difference in the original: ", report.rough);
  list("not shown, as they do not change: ", report.unchanged);
  return text;
}

}  // namespace weft
