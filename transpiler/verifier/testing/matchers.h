// GoogleMock matchers on programs, for tests of passes.
//
//   EXPECT_THAT(program, HasOp("c_allreduce_sum").WithRing(0).WithInput("X", "w@GRAD").Times(1));
//   EXPECT_THAT(program, HasNoRaces());
//   EXPECT_THAT(program, VerifiesFor(2).WithStartup(startup));
//   EXPECT_THAT(program, IsEquivalentTo(original));
//
// A mismatch explains itself: it lists the findings with their rules (docs/verifier.md), or the
// existing ops of the type.
#ifndef WEFT_TRANSPILER_VERIFIER_TESTING_MATCHERS_H_
#define WEFT_TRANSPILER_VERIFIER_TESTING_MATCHERS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/variant.h"
#include "gmock/gmock.h"
#include "proto/program.h"
#include "transpiler/verifier/verify.h"

namespace weft {

// Shows a program in a failing test: the first lines of its text.
void PrintTo(const Program& program, std::ostream* out);

namespace testing {

// Matches a main program without errors in the requested layers. Ignores warnings and notes.
class VerifiesMatcher {
 public:
  using is_gtest_matcher = void;

  // `what`: "has no races". Copies `original`.
  VerifiesMatcher(std::string what, VerifyOptions options,
                  absl::optional<Program> original = absl::nullopt);

  // The startup program, which sets up rings and initializes variables. Copied.
  VerifiesMatcher WithStartup(const Program& startup) const;

  bool MatchAndExplain(const Program& program, ::testing::MatchResultListener* listener) const;
  void DescribeTo(std::ostream* out) const;
  void DescribeNegationTo(std::ostream* out) const;

 private:
  std::string what_;
  VerifyOptions options_;
  absl::optional<Program> original_, startup_;
};

// Streams order all accesses to data: rules W401 to W407. Works for incomplete programs of a few
// ops.
VerifiesMatcher HasNoRaces();

// Correct for this number of ranks, in all layers except equivalence. The program must be complete:
// it has every input, and writes every variable before it reads it.
VerifiesMatcher VerifiesFor(int nranks);
// With other options: distributed parameters, summed gradients. Ignores `options.original`.
VerifiesMatcher VerifiesFor(VerifyOptions options);

// Computes on its ranks what `original` computes on one device with the global batch: rules W601 to
// W604, and layer 1, on which they rely. The number of ranks comes from `options`, else from the
// program.
VerifiesMatcher IsEquivalentTo(const Program& original, VerifyOptions options = {});

// Matches a program with an op of a type that meets all conditions, or with as many such ops as
// Times says.
class HasOpMatcher {
 public:
  using is_gtest_matcher = void;

  explicit HasOpMatcher(std::string type) : type_(std::move(type)) {}

  HasOpMatcher WithRing(int ring_id) const { return WithAttr("ring_id", ring_id); }
  // The slot contains the variable.
  HasOpMatcher WithInput(std::string slot, std::string variable) const;
  HasOpMatcher WithOutput(std::string slot, std::string variable) const;
  // Does not distinguish INT from LONG or FLOAT from FLOAT64 (a FLOAT is the nearest float).
  HasOpMatcher WithAttr(std::string name, int value) const;
  HasOpMatcher WithAttr(std::string name, int64_t value) const;
  HasOpMatcher WithAttr(std::string name, double value) const;
  HasOpMatcher WithAttr(std::string name, bool value) const;
  HasOpMatcher WithAttr(std::string name, const char* value) const;
  HasOpMatcher WithAttr(std::string name, std::string value) const;
  HasOpMatcher WithAttr(std::string name, std::vector<int64_t> value) const;
  // The op's role equals these bits (proto/op_role.h).
  HasOpMatcher WithRole(int role) const;
  HasOpMatcher InBlock(int block) const;
  // Exactly this number of ops; may be 0.
  HasOpMatcher Times(int count) const;

  bool MatchAndExplain(const Program& program, ::testing::MatchResultListener* listener) const;
  void DescribeTo(std::ostream* out) const;
  void DescribeNegationTo(std::ostream* out) const;

 private:
  using Value = absl::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;
  struct Argument {
    bool is_input;
    std::string slot, variable;
  };

  HasOpMatcher WithValue(std::string name, Value value) const;
  bool Meets(const Op& op) const;
  std::string Conditions() const;  // " with input X w@GRAD and ring_id 0"

  std::string type_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<std::string, Value>> attrs_;
  absl::optional<int> role_, block_, times_;
};

inline HasOpMatcher HasOp(std::string type) { return HasOpMatcher(std::move(type)); }

}  // namespace testing
}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_TESTING_MATCHERS_H_
