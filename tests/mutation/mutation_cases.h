// What mutants are made of, and what the verifier says of them.
#ifndef WEFT_TESTS_MUTATION_MUTATION_CASES_H_
#define WEFT_TESTS_MUTATION_MUTATION_CASES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/support/models.h"
#include "tests/support/program_descs.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"

namespace weft::testing {

// How a model is rewritten.
struct Configuration {
  std::string mode;
  std::map<std::string, std::string> flags = {};
  bool has_endpoints = false;  // ranks are processes; else threads of one
  Dialect dialect = Dialect::kWeft;
  int nranks = 2;
};

std::string NameOf(const Configuration& configuration);

// What the transpiler makes of a model, and claims of it.
struct Rewritten {
  std::vector<ProgramDescs> ranks;  // differ where ranks are processes
  Claims claims;
};

// Returns why the transpiler refuses where it does.
absl::StatusOr<Rewritten> Rewrite(const Model& model, const Configuration& configuration,
                                  Verification verification = Verification::kAtEnd);

// Four equal layers, updated by Lamb: with zero, each parameter has an owner.
Model EqualLayersByLamb();

// What the verifier says, as text.
struct Reports {
  std::vector<std::string> errors;
  std::set<std::string> remarks;  // rules and variables of warnings and notes
};

// Of what single ranks run, or of one program that all of them run. `original` may be null. A
// program that cannot be read is an error, too.
Reports ReportsOn(absl::Span<const ProgramDescs* const> ranks, int nranks, const Model* original,
                  const Claims& claims = {});
// The errors alone.
std::vector<std::string> Errors(absl::Span<const ProgramDescs* const> ranks, int nranks,
                                const Model* original, const Claims& claims = {});

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_MUTATION_CASES_H_
