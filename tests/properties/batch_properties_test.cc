// Layer 7 of the verifier against runs: programs over all kinds of values along the batch
// (tests/properties/random_program.h) are rewritten, run on one device with the whole batch and on
// ranks with their parts, and compared with what the walk along the batch says of every variable,
// and with what the verifier says of the program.
//
// Another seed, or more programs:
//   bazel test --test_env=RC_PARAMS="seed=7 max_success=5000"
//   //tests/properties:batch_properties_test
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/text/program_text.h"
#include "rapidcheck/gtest.h"
#include "tests/properties/named_causes.h"
#include "tests/properties/random_ops.h"
#include "tests/properties/random_program.h"
#include "tests/properties/random_runs.h"
#include "tests/properties/relation_checks.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

// Until the ranks of LocalSGD have averaged once, and trained by themselves again.
int StepsOf(const RandomSpec& spec, bool has_chain) {
  if (spec.nranks == 3) return 1;
  if (has_chain) return 5;
  return spec.rewrite == RandomRewrite::kLocalSgd ? spec.k_steps + 1 : 2;
}

// Whether a line says that ranks hand out their parts of the variable, which these are.
bool IsToldAsPart(const std::vector<std::string>& lines, const std::string& variable,
                  const std::vector<Values>& of_ranks, const Values& whole) {
  std::vector<BatchRelation> relations = {BatchRelation::PartialMax(), BatchRelation::PartialMin(),
                                          BatchRelation::PartialProd()};
  for (int axis = 0; axis < 4; ++axis) {
    relations.push_back(BatchRelation::Shape(axis));
    for (int power = -2; power <= 2; ++power) {
      relations.push_back(BatchRelation::Sharded(axis, power));
      if (axis > 0) continue;
      relations.push_back(BatchRelation::Partial(power));
      relations.push_back(BatchRelation::Replicated(power));
    }
  }
  for (const std::string& line : lines) {
    if (!absl::StrContains(line, "W711")) continue;
    for (BatchRelation relation : relations) {
      const std::string part = absl::StrCat(" ", variable, " (", ToString(relation), ")");
      if (absl::StrContains(line, part) && Holds(relation, of_ranks, whole)) return true;
    }
  }
  return false;
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
};

void Print(const std::string& rewrite, const Counts& counts) {
  const auto share = [&](int part) {
    return absl::StrCat(part, " (", part * 100 / std::max(1, counts.programs), " %)");
  };
  std::cout << rewrite << ": " << counts.programs << " programs\n"
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
  Case(const RandomSpec& spec, Counts* counts)
      : spec_(spec),
        counts_(*counts),
        drawn_(BuildRandomProgram(spec)),
        steps_(StepsOf(spec, drawn_.has_chain)),
        main_(drawn_.main),
        startup_(drawn_.startup) {}

  void Check() {
    ++counts_.programs;
    if (!Rewrite()) return;
    const absl::StatusOr<Results> whole =
        RunRandomProgram(drawn_, drawn_.main, drawn_.startup, 1, steps_);
    const absl::StatusOr<Results> ranks =
        RunRandomProgram(drawn_, main_, startup_, spec_.nranks, steps_);
    const bool has_conditions = drawn_.main.num_blocks() > 1;
    if (!whole.ok() || !ranks.ok() || HasLargeValues(*whole) ||
        (has_conditions && HasRoundingErrors(*whole))) {
      ++counts_.not_run;
      return;
    }
    CheckRelations(*whole, *ranks);
    CheckVerdict(*whole, *ranks);
  }

  const RandomProgram& drawn() const { return drawn_; }

 private:
  bool Rewrite() {
    TranspileOptions options;
    if (spec_.rewrite == RandomRewrite::kLocalSgd) {
      options.mode = "local_sgd";
      options.mode_flags = {{"k_steps", absl::StrCat(spec_.k_steps)}, {"state", spec_.state}};
    } else {
      options.mode = "grad_allreduce";
      if (spec_.averages) options.mode_flags["scale"] = "avg";
      if (spec_.rewrite == RandomRewrite::kExactLoss) options.mode_flags["exact_loss"] = "on";
    }
    options.cluster.nranks = spec_.nranks;
    options.feeds = drawn_.feeds.layouts;
    ProgramPair pair{&main_, &startup_};
    const absl::StatusOr<TranspileResult> result = Transpile(options, pair);
    if (!result.ok()) {
      ++counts_.refused;
      return false;
    }
    VerifyOptions verify;
    verify.setting.nranks = spec_.nranks;
    verify.setting.feeds = drawn_.feeds.layouts;
    verify.original = {&drawn_.main, &drawn_.startup};
    verify.setting.averaging = result->claims.averaging;
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

  BatchFlow Flow(bool follow_effects) const {
    BatchFlowOptions options;
    options.setting.feeds = drawn_.feeds.layouts;
    options.setting.nranks = spec_.nranks;
    options.zeros = Zeros();
    options.follow_effects = follow_effects;
    options.original = &drawn_.main;
    return BatchFlow::Of(main_, options);
  }

  // Of the variable of the root block, or of a state of inner blocks.
  std::vector<VarId> VarsOf(const std::string& name) const {
    std::vector<VarId> vars;
    for (int block = 0; block < main_.num_blocks(); ++block) {
      const VarId var = main_.block(block).FindVar(name);
      if (var.valid() && (block == 0 || main_.var(var).persistable())) vars.push_back(var);
    }
    return vars;
  }

  // The ops that reset states under LocalSGD, if a line says so.
  std::set<OpId> Resets() const {
    std::set<OpId> resets;
    const bool is_told = std::any_of(findings_.all().begin(), findings_.all().end(),
                                     [](const Finding& finding) { return finding.rule == "W609"; });
    for (int block = 0; is_told && block < main_.num_blocks(); ++block) {
      for (OpId id : main_.block(block).ops()) {
        const Op op = main_.op(id);
        if (op.type() != "fill_constant") continue;
        const VarId var = main_.block(block).Resolve(op.output_args()[0]);
        if (main_.var(var).persistable()) resets.insert(id);
      }
    }
    return resets;
  }

  // Ops whose outputs the walk takes for those of one device, for other layers to tell otherwise:
  // updates by gradients that are not those of one device, and resets.
  std::set<OpId> ToldElsewhere() const {
    std::set<OpId> ops = Resets();
    for (const BatchUpdate& update : flow_.updates()) ops.insert(update.op);
    return ops;
  }

  // Every variable has the relation that the walk says.
  void CheckRelations(const Results& whole, const Results& ranks) {
    flow_ = Flow(/*follow_effects=*/false);
    // Draws and statistics, and parameters that ranks train by themselves, count as those of one
    // device, too.
    std::set<OpId> ops = ToldElsewhere();
    ops.insert(flow_.own_updates().begin(), flow_.own_updates().end());
    for (const BatchEffectAt& at : flow_.effects()) ops.insert(at.op);
    for (int step = 0; step < steps_; ++step) {
      const std::set<std::string> others = Downstream(main_, ops, {}, step + 1);
      for (const std::string& name : Compared(drawn_.main)) {
        if (others.count(name) > 0 || ranks[step].count(name) == 0) continue;
        for (VarId var : VarsOf(name)) {
          CheckRelation(step, name, flow_.AtEnd(var), ranks[step].at(name),
                        whole[step].at(name)[0]);
        }
      }
    }
  }

  void CheckRelation(int step, const std::string& name, const BatchValue& value,
                     const std::vector<Values>& found, const Values& expected) {
    const bool is_zero = !value.is_zero || Largest(expected) == 0;
    if (is_zero && Holds(value.relation, found, expected)) return;
    Fail(absl::StrCat("step ", step, ", variable ", name, ": expected ", ToString(value.relation),
                      value.is_zero ? ", zero" : "", "; one device has", Show({expected}),
                      ", the ranks have", Show(found)));
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

  // What is not that of one device, in the first step in which anything is not.
  struct Differences {
    int step = 0;
    std::vector<std::string> variables;  // that outlive a step, and losses
    std::vector<RandomFetch> fetches;

    bool empty() const { return variables.empty() && fetches.empty(); }
  };

  Differences FindDifferences(const Results& whole, const Results& ranks) const {
    std::set<std::string> losses;
    for (Symbol loss : FindLosses(drawn_.main)) losses.emplace(drawn_.main.name(loss));
    Differences different;
    const auto is_as_told = [&](const std::string& name, const std::string& copy) {
      const std::vector<Values>& values = ranks[different.step].at(copy);
      const Values& expected = whole[different.step].at(copy)[0];
      if (Holds(BatchRelation::Replicated(), values, expected)) return true;
      return losses.count(name) > 0 && (Holds(BatchRelation::Partial(), values, expected) ||
                                        Holds(BatchRelation::PartialSum(), values, expected));
    };
    for (int step = 0; step < steps_ && different.empty(); ++step) {
      different.step = step;
      for (const auto& [name, values] : ranks[step]) {
        const std::vector<VarId> vars = VarsOf(name);
        const bool outlives = !vars.empty() && main_.var(vars[0]).persistable();
        const bool counts = outlives || losses.count(name) > 0;
        if (counts && !is_as_told(name, name)) different.variables.push_back(name);
      }
      for (const RandomFetch& fetch : drawn_.fetches) {
        const bool has_value = ranks[step].count(fetch.copy) > 0;
        if (has_value && !is_as_told(fetch.variable, fetch.copy))
          different.fetches.push_back(fetch);
      }
    }
    return different;
  }

  // What differs has its cause among the findings.
  void CheckVerdict(const Results& whole, const Results& ranks) {
    const Differences different = FindDifferences(whole, ranks);
    if (different.empty()) return CountEqual();
    std::vector<std::string> names = different.variables;
    for (const RandomFetch& fetch : different.fetches) {
      const std::vector<Values>& values = ranks[different.step].at(fetch.copy);
      const Values& expected = whole[different.step].at(fetch.copy)[0];
      if (!IsToldAsPart(Lines(), fetch.variable, values, expected)) names.push_back(fetch.copy);
    }
    if (findings_.all().empty()) {
      Fail(absl::StrCat("verified, but different: ", absl::StrJoin(names, ", ")));
    }
    ++counts_.different;
    const std::set<std::string> named = NamedAsDifferent(main_, flow_, Lines(), steps_ + 1);
    const BatchFlow effects = Flow(/*follow_effects=*/true);
    const std::set<std::string> others = Downstream(main_, ToldElsewhere(), {}, steps_ + 1);
    for (const std::string& name : names) {
      if (named.count(name) == 0) Fail(absl::StrCat(name, " differs, and no finding names why"));
      const std::vector<VarId> vars = VarsOf(name);
      const bool is_known = std::any_of(
          vars.begin(), vars.end(), [&](VarId var) { return !effects.AtEnd(var).IsOfOneDevice(); });
      if (!is_known && others.count(name) == 0) {
        Fail(absl::StrCat(name, " differs, and the walk takes it for the reference value"));
      }
    }
  }

  void CountEqual() {
    if (findings_.all().empty()) {
      ++counts_.verified;
      return;
    }
    ++counts_.undecided;
    for (const Finding& finding : findings_.all()) {
      const std::string type(finding.op.valid() ? main_.op(finding.op).type() : "");
      ++counts_.undecided_by[absl::StrCat(finding.rule, " ", type)];
    }
  }

  const RandomSpec& spec_;
  Counts& counts_;
  const RandomProgram drawn_;
  const int steps_;
  Program main_, startup_;
  Findings findings_;
  BatchFlow flow_;  // of main_
};

TEST(BatchProperties, VerdictsHoldInRuns) {
  std::map<RandomRewrite, Counts> counts;
  std::set<int> drawn;
  rc::detail::checkGTest([&](const RandomSpec& spec) {
    Case random_case(spec, &counts[spec.rewrite]);
    drawn.insert(random_case.drawn().drawn.begin(), random_case.drawn().drawn.end());
    random_case.Check();
  });
  std::cout << drawn.size() << " of " << testing::RandomOps().size()
            << " ops and ways to use them\n";
  Print("grad_allreduce", counts[RandomRewrite::kGradAllReduce]);
  Print("grad_allreduce --exact_loss", counts[RandomRewrite::kExactLoss]);
  Print("local_sgd", counts[RandomRewrite::kLocalSgd]);
  // Else the test would not test.
  EXPECT_GE(drawn.size() * 10, testing::RandomOps().size() * 9);
  for (const auto& [rewrite, of] : counts) {
    const bool is_local = rewrite == RandomRewrite::kLocalSgd;
    EXPECT_GE(of.verified * (is_local ? 20 : 4), of.programs);
    EXPECT_GE(of.different * (is_local ? 4 : 20), of.programs);
  }
}

}  // namespace
}  // namespace weft::testing
