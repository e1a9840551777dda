// Layer 7 of the verifier against runs: programs over all kinds of values along the batch
// (tests/drawn_program.h) are rewritten, run on one device with the whole batch and on ranks with
// their parts, and compared with what the walk along the batch says of every variable, and with
// what the verifier says of the program.
//
// Another seed, or more programs:
//   bazel test --test_env=RC_PARAMS="seed=7 max_success=5000" //tests:batch_properties_test
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "executor/runner.h"
#include "gtest/gtest.h"
#include "ops/analysis/batch_flow.h"
#include "ops/analysis/losses.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/text/program_text.h"
#include "rapidcheck/gtest.h"
#include "tests/drawn_ops.h"
#include "tests/drawn_program.h"
#include "tests/named_causes.h"
#include "transpiler/transpile.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

using testing::BuildDrawn;
using testing::Downstream;
using testing::DrawnProgram;
using testing::DrawnSpec;
using testing::NamedAsDifferent;

// Programs are in fp64, but the factor 1/n is in fp32: a third of a gradient is rounded, which a
// second step might compare with something.
constexpr double kTolerance = 2e-5;
int StepsOf(int nranks, bool has_chain) {
  if (nranks == 3) return 1;
  return has_chain ? 5 : 2;
}
// Rounding decides more than that of larger values.
constexpr double kMaxMagnitude = 1e6;

// --- Runs ----------------------------------------------------------------------------------------

struct Values {
  Dims dims;
  std::vector<double> data;
};

template <typename T>
Values Read(const Tensor& tensor) {
  return {tensor.dims(), {tensor.data<T>(), tensor.data<T>() + tensor.size()}};
}

absl::optional<Values> AsDoubles(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      return Read<double>(tensor);
    case DType::kFloat32:
      return Read<float>(tensor);
    case DType::kInt64:
      return Read<int64_t>(tensor);
    case DType::kInt32:
      return Read<int32_t>(tensor);
    case DType::kBool:
      return Read<bool>(tensor);
    case DType::kUint8:
      return Read<uint8_t>(tensor);
    default:
      return absl::nullopt;
  }
}

// By step, variable and rank.
using Results = std::vector<std::map<std::string, std::vector<Values>>>;

// All variables that ops of the root block write, in the order in which they first do.
std::vector<std::string> Written(const Program& program) {
  std::vector<std::string> names;
  std::set<Symbol> seen;
  for (OpId id : program.block(0).ops()) {
    for (Symbol name : program.op(id).output_args()) {
      const VarId var = program.block(0).Resolve(name);
      if (!var.valid() || !DeclaredType(program.var(var)).has_value()) continue;
      if (!seen.insert(name).second) continue;
      if (!absl::EndsWith(program.name(name), ".XShape")) names.emplace_back(program.name(name));
    }
  }
  return names;
}

absl::StatusOr<Results> Run(const DrawnProgram& drawn, const Program& main, const Program& startup,
                            int nranks, int steps) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.steps = steps;
  options.fetch = Written(drawn.main);
  options.timeout_s = 20;
  Results results(steps);
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds = drawn.feeds;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      const absl::optional<Values> values = AsDoubles(result.values[i]);
      if (values.has_value()) results[result.step][options.fetch[i]].push_back(*values);
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<RunResult> run = RunProgram(inputs, options);
  if (!run.ok()) return run.status();
  return results;
}

// --- Comparing -----------------------------------------------------------------------------------

bool IsNear(double a, double b, double scale) {
  return std::fabs(a - b) <= kTolerance * (1 + std::fabs(scale));
}

double Largest(const Values& values) {
  double largest = 0;
  for (double x : values.data) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

bool HasLargeValues(const Results& results) {
  for (const auto& step : results) {
    for (const auto& [name, values] : step) {
      if (Largest(values[0]) > kMaxMagnitude) return true;
    }
  }
  return false;
}

bool AreNear(const Values& found, const Values& expected, double factor) {
  if (found.dims != expected.dims) return false;
  const double scale = Largest(expected) * factor;
  for (size_t i = 0; i < found.data.size(); ++i) {
    if (!IsNear(found.data[i], factor * expected.data[i], scale)) return false;
  }
  return true;
}

// Part r of n along an axis; none if there is no such part.
absl::optional<Values> PartOf(const Values& whole, int axis, int r, int n) {
  if (axis >= static_cast<int>(whole.dims.size()) || whole.dims[axis] % n != 0)
    return absl::nullopt;
  Values part{whole.dims, {}};
  part.dims[axis] /= n;
  int64_t inner = part.dims[axis], outer = 1;
  for (size_t i = axis + 1; i < whole.dims.size(); ++i) inner *= whole.dims[i];
  for (int i = 0; i < axis; ++i) outer *= whole.dims[i];
  for (int64_t o = 0; o < outer; ++o) {
    const auto begin = whole.data.begin() + (o * n + r) * inner;
    part.data.insert(part.data.end(), begin, begin + inner);
  }
  return part;
}

Values Mean(const std::vector<Values>& of_ranks) {
  Values mean{of_ranks[0].dims, std::vector<double>(of_ranks[0].data.size(), 0)};
  for (const Values& values : of_ranks) {
    for (size_t i = 0; i < mean.data.size(); ++i) {
      mean.data[i] += i < values.data.size() ? values.data[i] / of_ranks.size() : 0;
    }
  }
  return mean;
}

// Element by element, over the ranks.
Values Reduced(BatchRelation::Kind kind, const std::vector<Values>& of_ranks) {
  Values reduced = of_ranks[0];
  for (const Values& values : of_ranks) {
    if (&values == &of_ranks[0]) continue;
    for (size_t i = 0; i < std::min(reduced.data.size(), values.data.size()); ++i) {
      double& value = reduced.data[i];
      value = kind == BatchRelation::Kind::kPartialMax   ? std::max(value, values.data[i])
              : kind == BatchRelation::Kind::kPartialMin ? std::min(value, values.data[i])
                                                         : value * values.data[i];
    }
  }
  return reduced;
}

// Whether the values of the ranks and of one device have the relation.
bool Holds(BatchRelation relation, const std::vector<Values>& of_ranks, const Values& whole) {
  const int n = static_cast<int>(of_ranks.size());
  const double factor = std::pow(n, relation.power);
  switch (relation.kind) {
    case BatchRelation::Kind::kUnrelated:
      return true;
    case BatchRelation::Kind::kReplicated:
      return std::all_of(of_ranks.begin(), of_ranks.end(),
                         [&](const Values& values) { return AreNear(values, whole, factor); });
    case BatchRelation::Kind::kPartial:
      return std::all_of(of_ranks.begin(), of_ranks.end(),
                         [&](const Values& values) { return values.dims == whole.dims; }) &&
             AreNear(Mean(of_ranks), whole, factor);
    case BatchRelation::Kind::kPartialMax:
    case BatchRelation::Kind::kPartialMin:
    case BatchRelation::Kind::kPartialProd:
      return AreNear(Reduced(relation.kind, of_ranks), whole, 1);
    case BatchRelation::Kind::kSharded:
      for (int r = 0; r < n; ++r) {
        const absl::optional<Values> part = PartOf(whole, relation.axis, r, n);
        if (!part.has_value() || !AreNear(of_ranks[r], *part, factor)) return false;
      }
      return true;
    case BatchRelation::Kind::kShape: {
      Values expected = whole;
      if (relation.axis >= static_cast<int>(expected.data.size())) return false;
      expected.data[relation.axis] /= n;
      return Holds(BatchRelation::Replicated(), of_ranks, expected);
    }
  }
  return false;
}

std::string Show(const std::vector<Values>& values) {
  std::string text;
  for (const Values& v : values) {
    absl::StrAppend(
        &text, " ", DimsToString(v.dims), " {",
        absl::StrJoin(v.data.begin(), v.data.begin() + std::min<size_t>(12, v.data.size()), ", "),
        "}");
  }
  return text;
}

// --- What depends on what ------------------------------------------------------------------------

// Ops whose results the walk takes for those of one device, for another layer or a note to tell
// otherwise: draws, statistics, updates by gradients that are not reduced.
std::set<OpId> Excused(const Program& program, const BatchFlow& flow) {
  std::set<OpId> ops;
  for (const BatchEffectAt& at : flow.effects()) ops.insert(at.op);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.Input("Param").empty() || op.Input("Grad").empty()) continue;
    const VarId gradient = program.block(0).Resolve(op.Input("Grad")[0]);
    if (!flow.AtEnd(gradient).relation.IsSame()) ops.insert(id);
  }
  return ops;
}

// --- Verdicts ------------------------------------------------------------------------------------

struct Counts {
  int programs = 0;
  int refused = 0;    // by the transpiler
  int not_run = 0;    // indices out of range, numbers that are not finite
  int verified = 0;   // without a finding
  int undecided = 0;  // with findings, but equal to one device
  int different = 0;  // with findings that name what differs
  std::map<std::string, int> undecided_by;
  std::set<int> drawn;
};

void Print(const Counts& counts) {
  const auto share = [&](int part) {
    return absl::StrCat(part, " (", part * 100 / std::max(1, counts.programs), " %)");
  };
  std::cout << counts.programs << " programs of " << counts.drawn.size() << " of "
            << testing::DrawnOps().size() << " ops and ways to use them\n"
            << "  verified without a finding:        " << share(counts.verified) << "\n"
            << "  not decided: findings, but equal:  " << share(counts.undecided) << "\n"
            << "  findings, and different:           " << share(counts.different) << "\n"
            << "  refused:                           " << share(counts.refused) << "\n"
            << "  not run to the end:                " << share(counts.not_run) << "\n";
  for (const auto& [cause, count] : counts.undecided_by) {
    std::cout << "    not decided by " << cause << ": " << count << "\n";
  }
}

class Case {
 public:
  Case(const DrawnSpec& spec, Counts* counts)
      : spec_(spec),
        counts_(*counts),
        drawn_(BuildDrawn(spec)),
        steps_(StepsOf(spec.nranks, drawn_.has_chain)),
        main_(drawn_.main),
        startup_(drawn_.startup) {}

  void Check() {
    ++counts_.programs;
    counts_.drawn.insert(drawn_.drawn.begin(), drawn_.drawn.end());
    if (!Rewrite()) return;
    const absl::StatusOr<Results> whole = Run(drawn_, drawn_.main, drawn_.startup, 1, steps_);
    const absl::StatusOr<Results> ranks = Run(drawn_, main_, startup_, spec_.nranks, steps_);
    if (!whole.ok() || !ranks.ok() || HasLargeValues(*whole)) {
      ++counts_.not_run;
      return;
    }
    CheckRelations(*whole, *ranks);
    CheckVerdict(*whole, *ranks);
  }

 private:
  bool Rewrite() {
    TranspileOptions options;
    options.mode = "grad_allreduce";
    if (spec_.averages) options.mode_flags["scale"] = "avg";
    if (spec_.exact_loss) options.mode_flags["exact_loss"] = "on";
    options.cluster.nranks = spec_.nranks;
    options.feeds = drawn_.feeds.layouts;
    ProgramPair pair{&main_, &startup_};
    const absl::StatusOr<TranspileResult> result = Transpile(options, pair);
    if (!result.ok()) {
      ++counts_.refused;
      return false;
    }
    VerifyOptions verify;
    verify.nranks = spec_.nranks;
    verify.feeds = drawn_.feeds.layouts;
    verify.original = {&drawn_.main, &drawn_.startup};
    findings_ = Verify({{&main_, &startup_}}, verify);
    return true;
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const Finding& finding : findings_.all()) lines.push_back(ToString(finding));
    return lines;
  }

  void Fail(const std::string& what) {
    RC_FAIL(absl::StrCat(what, "\nfindings:\n", absl::StrJoin(Lines(), "\n"), "\n",
                         ProgramText(main_)));
  }

  // Every variable has the relation that the walk says.
  void CheckRelations(const Results& whole, const Results& ranks) {
    BatchFlowOptions options;
    options.feeds = drawn_.feeds.layouts;
    options.nranks = spec_.nranks;
    options.zeros = Zeros();
    flow_ = BatchFlow::Of(main_, options);
    const std::set<OpId> excused = Excused(main_, flow_);
    for (int step = 0; step < steps_; ++step) {
      const std::set<std::string> others = Downstream(main_, excused, {}, step + 1);
      for (const std::string& name : Written(drawn_.main)) {
        const VarId var = main_.block(0).FindVar(name);
        if (others.count(name) > 0 || ranks[step].count(name) == 0) continue;
        const std::vector<Values>& values = ranks[step].at(name);
        const BatchValue& value = flow_.AtEnd(var);
        const Values& expected = whole[step].at(name)[0];
        if (!Holds(value.relation, values, expected) || (value.is_zero && Largest(expected) > 0)) {
          return Fail(absl::StrCat("step ", step, ", variable ", name, ": expected ",
                                   ToString(value.relation), value.is_zero ? ", zero" : "",
                                   "; one device has", Show({expected}), ", the ranks have",
                                   Show(values)));
        }
      }
    }
  }

  std::set<std::string> Zeros() const {
    std::set<std::string> zeros;
    for (OpId id : drawn_.startup.block(0).ops()) {
      const Op op = drawn_.startup.op(id);
      if (op.type() == "fill_constant" && op.FloatAttr("value") == 0.0f) {
        zeros.emplace(drawn_.startup.name(op.output_args()[0]));
      }
    }
    return zeros;
  }

  // In the first step in which any do: the variables that outlive a step, and losses, that differ.
  std::vector<std::string> Different(const Results& whole, const Results& ranks) const {
    std::set<std::string> losses;
    for (Symbol loss : FindLosses(drawn_.main)) losses.emplace(drawn_.main.name(loss));
    std::vector<std::string> different;
    for (int step = 0; step < steps_ && different.empty(); ++step) {
      for (const auto& [name, values] : ranks[step]) {
        const Values& expected = whole[step].at(name)[0];
        const VarId var = main_.block(0).FindVar(name);
        const bool outlives = var.valid() && main_.var(var).persistable();
        const bool is_mean = Holds(BatchRelation::Partial(), values, expected);
        if (outlives && !Holds(BatchRelation::Replicated(), values, expected)) {
          different.push_back(name);
        } else if (losses.count(name) > 0 && !is_mean &&
                   !Holds(BatchRelation::PartialSum(), values, expected)) {
          different.push_back(name);
        }
      }
    }
    return different;
  }

  // What differs has its cause among the findings.
  void CheckVerdict(const Results& whole, const Results& ranks) {
    const std::vector<std::string> different = Different(whole, ranks);
    if (findings_.all().empty()) {
      if (!different.empty()) {
        Fail(absl::StrCat("verified, but different: ", absl::StrJoin(different, ", ")));
      }
      ++counts_.verified;
      return;
    }
    if (different.empty()) {
      ++counts_.undecided;
      for (const Finding& finding : findings_.all()) {
        const std::string type(finding.op.valid() ? main_.op(finding.op).type() : "");
        ++counts_.undecided_by[absl::StrCat(finding.rule, " ", type)];
      }
      return;
    }
    ++counts_.different;
    const std::set<std::string> named = NamedAsDifferent(main_, flow_, Lines(), steps_ + 1);
    for (const std::string& name : different) {
      if (named.count(name) == 0) Fail(absl::StrCat(name, " differs, and no finding names why"));
    }
  }

  const DrawnSpec& spec_;
  Counts& counts_;
  const DrawnProgram drawn_;
  const int steps_;
  Program main_, startup_;
  Findings findings_;
  BatchFlow flow_;  // of main_
};

TEST(BatchProperties, VerdictsHoldInRuns) {
  Counts counts;
  rc::detail::checkGTest([&](const DrawnSpec& spec) { Case(spec, &counts).Check(); });
  Print(counts);
  // Else the test would not test.
  EXPECT_GE(counts.verified * 4, counts.programs);
  EXPECT_GE(counts.different * 20, counts.programs);
  EXPECT_GE(counts.drawn.size() * 10, testing::DrawnOps().size() * 9);
}

}  // namespace
}  // namespace weft
