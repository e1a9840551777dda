// What mutants are made of, and what the verifier says of them.
#ifndef WEFT_TESTS_MUTATION_CASES_H_
#define WEFT_TESTS_MUTATION_CASES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/models.h"
#include "tests/program_descs.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/pass.h"

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
  ProgramDescs programs;
  Claims claims;
};

// Returns why the transpiler refuses where it does.
absl::StatusOr<Rewritten> Rewrite(const Model& model, const Configuration& configuration);

// The verifier's errors, as text: on what single ranks run, or on one program that all of them run.
// `original` may be null. A program that cannot be read is an error, too.
std::vector<std::string> Errors(absl::Span<const ProgramDescs* const> ranks, int nranks,
                                const Model* original, const Claims& claims = {});

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_CASES_H_
