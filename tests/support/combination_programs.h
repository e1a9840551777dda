// The programs of a pair of features, and the passes that rewrite them.
#ifndef WEFT_TESTS_SUPPORT_COMBINATION_PROGRAMS_H_
#define WEFT_TESTS_SUPPORT_COMBINATION_PROGRAMS_H_

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "tests/support/combinations.h"
#include "tests/support/training_programs.h"
#include "transpiler/transpile.h"

namespace weft::testing {

inline constexpr int kPairParts = 2;   // steps whose gradients are accumulated
inline constexpr int kPairRounds = 2;  // averages, of which the last is over all groups
inline constexpr int kPairGroup = 2;   // ranks

struct FeaturePair {
  Feature first, second;  // in the order of the enumerators
  bool Has(Feature feature) const { return first == feature || second == feature; }
  bool HasAny(std::initializer_list<Feature> features) const {
    return absl::c_any_of(features, [this](Feature feature) { return Has(feature); });
  }
  bool Averages() const {
    return HasAny({Feature::kLocalSgd, Feature::kGroups, Feature::kOuter, Feature::kPartial});
  }
  int ranks() const { return Has(Feature::kGroups) ? 2 * kPairGroup : 2; }
  // Steps from one that leaves all ranks equal parameters to the next.
  int steps() const {
    return Has(Feature::kAccumulation) ? kPairParts : Has(Feature::kGroups) ? kPairRounds : 1;
  }
};
// Of `outer`.
inline constexpr double kOuterLr = 0.5, kOuterMomentum = 0.75;

// "TopK".
std::string NameOf(Feature feature);
void PrintTo(const FeaturePair& pair, std::ostream* out);

// Layers with a bias each; with rows, of embeddings; narrow: with gradients in fp16.
TrainingPrograms SmallProgram(bool has_rows, bool is_narrow);

// With the features of the pair that are properties of a program.
TrainingPrograms ProgramsOf(const FeaturePair& pair);

// The passes that change what is computed, and run first.
std::vector<std::string> ChangesOf(const FeaturePair& pair);

// All passes, in the order of docs/modes.md.
std::string PassesOf(const FeaturePair& pair);

// The parameters that go to servers: the first one, and tables; with low rank, a bias, whose
// gradient is never compressed.
std::vector<std::string> ServedOf(const FeaturePair& pair, const TrainingPrograms& programs);

// Returns the program of the servers, if there are any.
absl::StatusOr<absl::optional<Program>> RewritePair(
    const FeaturePair& pair, TrainingPrograms* programs,
    Verification verification = Verification::kAtEnd);
absl::Status Rewrite(const std::string& passes, int nranks, TrainingPrograms* programs,
                     Verification verification = Verification::kAtEnd);

// Whether the rewritten main program shows that the feature is there.
bool Shows(Feature feature, const Program& main);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_COMBINATION_PROGRAMS_H_
