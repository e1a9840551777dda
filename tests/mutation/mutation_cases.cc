#include "tests/mutation/mutation_cases.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/setting.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/claim_verifier.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/testing/whole_programs.h"

namespace weft::testing {

std::string NameOf(const Configuration& configuration) {
  std::string name = configuration.mode;
  if (configuration.dialect == Dialect::kPaddle) name = absl::StrCat("paddle ", name);
  for (const auto& [flag, value] : configuration.flags) {
    absl::StrAppend(&name, " ", flag, "=", value);
  }
  return absl::StrCat(name, configuration.has_endpoints ? " endpoints" : "",
                      " nranks=", configuration.nranks);
}

Model EqualLayersByLamb() {
  TrainingSpec spec;
  spec.layers.assign(4, {5, Activation::kTanh, /*bias=*/true});
  spec.head.layer = 3;
  spec.weights_by = spec.biases_by = OptimizerKind::kLamb;
  TrainingPrograms programs = BuildPrograms(spec);
  return {std::move(programs.main), std::move(programs.startup)};
}

namespace {

absl::StatusOr<Rewritten> RewriteForRank(const Model& model, const Configuration& configuration,
                                         Verification verification, int rank) {
  Model copy = model;
  TranspileOptions options;
  options.mode = configuration.mode;
  options.mode_flags = configuration.flags;
  options.dialect = configuration.dialect;
  options.verification = verification;
  if (configuration.has_endpoints) {
    for (int i = 0; i < configuration.nranks; ++i) {
      options.cluster.endpoints.push_back(absl::StrCat("127.0.0.1:", 6170 + i));
    }
    options.cluster.rank = rank;
    options.cluster.current_endpoint = options.cluster.endpoints[rank];
  } else {
    options.cluster.nranks = configuration.nranks;
  }
  ProgramPair programs{&copy.main, &copy.startup};
  const auto result = Transpile(options, programs);
  if (!result.ok()) return result.status();
  return Rewritten{{{copy.main.ToProto(), copy.startup.ToProto()}}, result->claims};
}

}  // namespace

absl::StatusOr<Rewritten> Rewrite(const Model& model, const Configuration& configuration,
                                  Verification verification) {
  absl::StatusOr<Rewritten> rewritten = RewriteForRank(model, configuration, verification, 0);
  for (int rank = 1; rewritten.ok() && rank < configuration.nranks; ++rank) {
    if (!configuration.has_endpoints) {
      rewritten->ranks.push_back(rewritten->ranks[0]);
      continue;
    }
    const auto other = RewriteForRank(model, configuration, Verification::kNever, rank);
    if (!other.ok()) return other.status();
    rewritten->ranks.push_back(other->ranks[0]);
  }
  return rewritten;
}

Reports ReportsOn(absl::Span<const ProgramDescs* const> ranks, int nranks, const Model* original,
                  const Claims& claims) {
  std::deque<Program> programs;
  std::vector<ConstProgramPair> of_ranks;
  for (const ProgramDescs* descs : ranks) {
    for (const pb::ProgramDesc* desc : {&descs->main, &descs->startup}) {
      if (desc->blocks_size() == 0) continue;  // no startup program
      auto program = Program::FromProto(*desc);
      if (!program.ok()) return {{program.status().ToString()}, {}};
      programs.push_back(*std::move(program));
      if (desc == &descs->main) {
        of_ranks.push_back({&programs.back(), nullptr});
      } else {
        of_ranks.back().startup = &programs.back();
      }
    }
  }
  ConstProgramPair before;
  if (original != nullptr) before = {&original->main, &original->startup};
  VerifyOptions options = ExpectationsOf(claims, PassContext(), before);
  options.setting.nranks = nranks;
  const absl::StatusOr<Setting> setting = SettingOf(*of_ranks[0].main);
  if (setting.ok()) AddShares(*setting, &options.setting);
  options.threads = 1;
  const Findings findings = Verify(of_ranks, options);
  if (!findings.HasErrors() && original != nullptr) {
    // What is proved in the short way is found in the long one.
    const Findings of_whole = VerifyWholePrograms(of_ranks, options);
    for (const Finding& finding : of_whole.all()) {
      EXPECT_NE(finding.severity, Severity::kError) << ToString(finding);
    }
  }
  Reports reports;
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) {
      reports.errors.push_back(ToString(finding, ranks.size() == 1));
    } else {
      reports.remarks.insert(absl::StrCat(finding.rule, " ", finding.variable));
    }
  }
  return reports;
}

std::vector<std::string> Errors(absl::Span<const ProgramDescs* const> ranks, int nranks,
                                const Model* original, const Claims& claims) {
  return ReportsOn(ranks, nranks, original, claims).errors;
}

}  // namespace weft::testing
