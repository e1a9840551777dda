#include "tools/numeric/numeric_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/plan/plan.h"
#include "executor/run/runner.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "tools/numeric/inputs.h"

namespace weft {
namespace {

constexpr char kOriginal[] = "original program";
constexpr char kRewritten[] = "rewritten program";
constexpr int64_t kRowsPerRank = 4;

using Tensors = std::map<std::string, Tensor>;

// That of the least precise type of the program.
double PrecisionOf(const Program& program) {
  double tolerance = kNumericTolerance;
  for (const Var& var : AllVars(program)) {
    const absl::optional<TensorType> type = DeclaredType(var);
    if (!type.has_value()) continue;
    if (type->dtype == DType::kFloat16) tolerance = std::max(tolerance, kHalfTolerance);
    if (type->dtype == DType::kBFloat16) tolerance = std::max(tolerance, kBrainHalfTolerance);
  }
  return tolerance;
}

RunOptions RunOptionsFor(const NumericOptions& options, int nranks) {
  RunOptions run;
  run.kernels = options.kernels;
  run.nranks = nranks;
  run.steps = options.steps;
  run.timeout_s = options.timeout_s;
  // The comparison shows it.
  run.allow_unsynchronized = true;
  return run;
}

class NumericChecker {
 public:
  NumericChecker(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                 const NumericOptions& options)
      : original_(original), rewritten_(rewritten), options_(options) {
    report_.nranks = options.nranks;
    report_.steps = options.steps;
    report_.batch = kRowsPerRank * options.nranks;
    report_.tolerance = PrecisionOf(*original.main);
  }

  absl::StatusOr<NumericReport> Check() {
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, Prepare()));
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, RunOriginal()));
    WEFT_RETURN_IF_ERROR(Annotate(kOriginal, MeasureRounding()));
    WEFT_RETURN_IF_ERROR(Annotate(kRewritten, RunRewritten()));
    for (const std::string& name : fetch_) {
      if (rank_local_.count(name) > 0) {
        report_.rank_local.push_back(name);
      } else if (rough_.count(name) > 0) {
        report_.rough.push_back(name);
      } else {
        report_.compared.push_back(name);
      }
    }
    if (report_.compared.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(kOriginal,
                       ": no variable can be compared: each is rank-local, or rounding alone "
                       "changes it by more than ",
                       kMaxNumericTolerance));
    }
    return std::move(report_);
  }

 private:
  absl::Status Prepare() {
    PlanOptions plan_options;
    plan_options.kernels = options_.kernels;
    WEFT_ASSIGN_OR_RETURN(const Plan plan, Plan::Build(*original_.main, plan_options));
    variables_ = FindLearningVariables(*original_.main);
    ElementBudget budget;
    WEFT_ASSIGN_OR_RETURN(const FeedLayouts layouts,
                          FeedLayoutsOf(*original_.main, options_.feeds));
    WEFT_ASSIGN_OR_RETURN(data_, NumericData::Of(*original_.main, plan, options_.nranks,
                                                 report_.batch, layouts, &budget));
    WEFT_ASSIGN_OR_RETURN(
        start_, MakeStart(original_, RunOptionsFor(options_, 1), plan, variables_, data_, &budget));
    for (size_t v = 0; v < plan.variables.size(); ++v) {
      const Plan::Variable& variable = plan.variables[v];
      if (!IsTensorOfRoot(plan, v) || !variable.persistable || !variable.is_written) continue;
      fetch_.push_back(variable.name);
    }
    std::sort(fetch_.begin(), fetch_.end());
    return absl::OkStatus();
  }

  // What the original leaves in fetch_ after each step.
  absl::Status RunOnOneRank(NumericData::Order order,
                            std::vector<std::vector<Tensor>>* values) const {
    RunInputs inputs;
    inputs.main = original_.main;
    inputs.startup = original_.startup;
    inputs.params = &start_;
    inputs.feeds = data_.Source(order);
    inputs.on_result = [values](const StepResult& result) {
      values->push_back(result.values);
      return absl::OkStatus();
    };
    RunOptions run = RunOptionsFor(options_, 1);
    run.fetch = fetch_;
    return RunProgram(inputs, run).status();
  }

  absl::Status RunOriginal() {
    if (fetch_.empty()) return NothingChanges();
    WEFT_RETURN_IF_ERROR(RunOnOneRank(NumericData::Order::kAsMade, &expected_));
    bool any_changes = false;
    for (size_t i = 0; i < fetch_.size(); ++i) {
      if (variables_.parameters.count(fetch_[i]) == 0) continue;
      const auto before = start_.find(fetch_[i]);
      if (before == start_.end() || CompareTensors(before->second, expected_.back()[i])) {
        any_changes = true;
      } else {
        report_.unchanged.push_back(fetch_[i]);
      }
    }
    return any_changes ? absl::OkStatus() : NothingChanges();
  }

  absl::Status MeasureRounding() {
    rounding_.assign(expected_.size(), std::vector<double>(fetch_.size(), 0));
    for (NumericData::Order order :
         {NumericData::Order::kReversed, NumericData::Order::kEvenOnesFirst}) {
      std::vector<std::vector<Tensor>> values;
      WEFT_RETURN_IF_ERROR(RunOnOneRank(order, &values));
      for (size_t step = 0; step < values.size(); ++step) {
        for (size_t i = 0; i < fetch_.size(); ++i) {
          const auto difference = CompareTensors(expected_[step][i], values[step][i]);
          if (!difference.has_value()) continue;
          rounding_[step][i] = std::max(rounding_[step][i], difference->relative);
        }
      }
    }
    return absl::OkStatus();
  }

  double ToleranceOf(int64_t step, size_t i) const {
    return std::max(report_.tolerance, kRoundingFactor * rounding_[step][i]);
  }

  absl::Status NothingChanges() const {
    return absl::FailedPreconditionError(
        absl::StrCat("no parameter changes in ", options_.steps,
                     " steps, so there is nothing to compare; more steps may help"));
  }

  absl::Status RunRewritten() {
    const Program& program = *rewritten_.main;
    const auto keeps = [&](const std::string& name) {
      const VarId var = program.block(0).FindVar(name);
      return var.valid() && program.var(var).persistable();
    };
    Tensors start;
    for (const auto& [name, tensor] : start_) {
      if (keeps(name)) start.emplace(name, tensor);
    }
    for (const std::string& name : fetch_) {
      if (keeps(name)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "variable ", name, ": persistable in the original, but not in the rewritten program"));
    }
    RunInputs inputs;
    inputs.main = &program;
    inputs.startup = rewritten_.startup;
    inputs.params = &start;
    inputs.feeds = data_.Source();
    inputs.on_result = [this](const StepResult& result) {
      found_.push_back(result.values);
      if (result.rank + 1 < options_.nranks) return absl::OkStatus();
      CompareStep(result.step);
      found_.clear();
      // One difference is enough: ends the run.
      return report_.IsEqual() ? absl::OkStatus() : absl::CancelledError("a difference was found");
    };
    RunOptions run = RunOptionsFor(options_, options_.nranks);
    run.fetch = fetch_;
    const absl::Status status = RunProgram(inputs, run).status();
    return report_.IsEqual() ? status : absl::OkStatus();
  }

  void CompareStep(int64_t step) {
    for (size_t i = 0; i < fetch_.size(); ++i) {
      if (rank_local_.count(fetch_[i]) > 0) continue;
      const absl::optional<NumericReport::Difference> among_ranks = CompareRanks(step, i);
      if (among_ranks.has_value() && !IsReplicated(fetch_[i])) {
        rank_local_.insert(fetch_[i]);
        continue;
      }
      bool is_reported = rough_.count(fetch_[i]) > 0;
      for (int rank = 0; rank < options_.nranks && !is_reported; ++rank) {
        is_reported = CompareRank(step, rank, i);
      }
      const bool is_wrong =
          !report_.differences.empty() && report_.differences.back().variable == fetch_[i];
      if (among_ranks.has_value() && !is_wrong) report_.differences.push_back(*among_ranks);
    }
  }

  // Whether all ranks must have the same value.
  bool IsReplicated(const std::string& name) const {
    return variables_.parameters.count(name) > 0 || variables_.optimizer_states.count(name) > 0;
  }

  // The difference of a variable on a rank; none if it is equal.
  absl::optional<NumericReport::Difference> Compare(int64_t step, int rank, size_t i,
                                                    const Tensor& expected) const {
    absl::optional<NumericReport::Difference> difference =
        CompareTensors(expected, found_[rank][i]);
    if (!difference.has_value()) return difference;
    difference->variable = fetch_[i];
    difference->is_parameter = variables_.parameters.count(fetch_[i]) > 0;
    difference->step = step;
    difference->rank = rank;
    difference->of_original = rounding_[step][i];
    return difference;
  }

  // The first rank whose value differs from rank 0's in any bit.
  absl::optional<NumericReport::Difference> CompareRanks(int64_t step, size_t i) const {
    for (int rank = 1; rank < options_.nranks; ++rank) {
      absl::optional<NumericReport::Difference> difference = Compare(step, rank, i, found_[0][i]);
      if (!difference.has_value()) continue;
      difference->is_among_ranks = true;
      return difference;
    }
    return absl::nullopt;
  }

  // Reports a variable that is wrong, or too rough to compare; then true.
  bool CompareRank(int64_t step, int rank, size_t i) {
    const absl::optional<NumericReport::Difference> difference =
        Compare(step, rank, i, expected_[step][i]);
    if (!difference.has_value()) return false;
    if (difference->relative > ToleranceOf(step, i)) {
      report_.differences.push_back(*difference);
      return true;
    }
    if (difference->relative > std::max(kMaxNumericTolerance, report_.tolerance)) {
      rough_.insert(fetch_[i]);
      return true;
    }
    absl::optional<NumericReport::Difference>& largest = report_.largest_rounding;
    if (!largest.has_value() || largest->relative < difference->relative) largest = difference;
    return false;
  }

  const ConstProgramPair original_, rewritten_;
  const NumericOptions options_;
  LearningVariables variables_;
  NumericData data_;
  Tensors start_;
  std::vector<std::string> fetch_;
  std::vector<std::vector<Tensor>> expected_;  // by step
  std::vector<std::vector<double>> rounding_;  // of the original itself, by step
  std::vector<std::vector<Tensor>> found_;     // by rank, in the current step
  std::set<std::string> rank_local_, rough_;
  NumericReport report_;
};

}  // namespace

absl::StatusOr<NumericReport> CheckNumerically(const ConstProgramPair& original,
                                               const ConstProgramPair& rewritten,
                                               const NumericOptions& options) {
  return NumericChecker(original, rewritten, options).Check();
}

}  // namespace weft
