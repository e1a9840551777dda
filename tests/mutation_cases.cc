#include "tests/mutation_cases.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transpiler/claim_verifier.h"
#include "transpiler/transpile.h"
#include "transpiler/verify/testing/whole_programs.h"

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

absl::StatusOr<Rewritten> Rewrite(const Model& model, const Configuration& configuration) {
  Model copy = model;
  TranspileOptions options;
  options.mode = configuration.mode;
  options.mode_flags = configuration.flags;
  options.dialect = configuration.dialect;
  if (configuration.has_endpoints) {
    for (int rank = 0; rank < configuration.nranks; ++rank) {
      options.cluster.endpoints.push_back(absl::StrCat("127.0.0.1:", 6170 + rank));
    }
    options.cluster.rank = 0;
    options.cluster.current_endpoint = options.cluster.endpoints[0];
  } else {
    options.cluster.nranks = configuration.nranks;
  }
  ProgramPair programs{&copy.main, &copy.startup};
  const auto result = Transpile(options, programs);
  if (!result.ok()) return result.status();
  return Rewritten{{copy.main.ToProto(), copy.startup.ToProto()}, result->claims};
}

std::vector<std::string> Errors(absl::Span<const ProgramDescs* const> ranks, int nranks,
                                const Model* original, const Claims& claims) {
  std::deque<Program> programs;
  std::vector<ConstProgramPair> of_ranks;
  for (const ProgramDescs* descs : ranks) {
    for (const pb::ProgramDesc* desc : {&descs->main, &descs->startup}) {
      if (desc->blocks_size() == 0) continue;  // no startup program
      auto program = Program::FromProto(*desc);
      if (!program.ok()) return {program.status().ToString()};
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
  options.nranks = nranks;
  options.threads = 1;
  const Findings findings = Verify(of_ranks, options);
  if (!findings.HasErrors() && original != nullptr) {
    // What is proved in the short way is found in the long one.
    const Findings of_whole = VerifyWholePrograms(of_ranks, options);
    EXPECT_FALSE(of_whole.HasErrors()) << ToString(of_whole.all()[0]);
  }
  std::vector<std::string> errors;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kError) continue;
    // All ranks are given the startup program of rank 0.
    if (finding.rule == "W507") continue;
    errors.push_back(ToString(finding, ranks.size() == 1));
  }
  return errors;
}

}  // namespace weft::testing
