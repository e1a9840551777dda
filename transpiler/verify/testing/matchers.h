// GoogleMock matchers on programs, for tests of passes.
//
//   EXPECT_THAT(program, HasOp("c_allreduce_sum").WithRing(0).WithInput("X", "w@GRAD").Times(1));
//   EXPECT_THAT(program, HasNoRaces());
//   EXPECT_THAT(program, VerifiesFor(2).WithStartup(startup));
//   EXPECT_THAT(program, IsEquivalentTo(original));
//
// What does not match says why: the findings, each with its rule (docs/verifier.md), or the ops of
// that type that there are.
#ifndef WEFT_TRANSPILER_VERIFY_TESTING_MATCHERS_H_
#define WEFT_TRANSPILER_VERIFY_TESTING_MATCHERS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/variant.h"
#include "gmock/gmock.h"
#include "proto/program.h"
#include "transpiler/verify/verify.h"

namespace weft {

// How a test that fails shows a program: its text, the first lines of it where it is long.
void PrintTo(const Program& program, std::ostream* out);

namespace testing {

// Matches a main program in which the verifier finds no error in the layers that it is asked for;
// warnings and notes do not count.
class VerifiesMatcher {
 public:
  using is_gtest_matcher = void;

  // `what`: "has no races". Takes a copy of `original`, where there is one.
  VerifiesMatcher(std::string what, VerifyOptions options,
                  absl::optional<Program> original = absl::nullopt);

  // The startup program that runs before: which rings it sets up, what it leaves. Copied.
  VerifiesMatcher WithStartup(const Program& startup) const;

  bool MatchAndExplain(const Program& program, ::testing::MatchResultListener* listener) const;
  void DescribeTo(std::ostream* out) const;
  void DescribeNegationTo(std::ostream* out) const;

 private:
  std::string what_;
  VerifyOptions options_;
  absl::optional<Program> original_, startup_;
};

// No access to data that streams do not order: rules W401 to W407. Asks for nothing else, so it
// goes with programs of a few ops that are not whole.
VerifiesMatcher HasNoRaces();

// Right for so many ranks: all layers but equivalence. The program has to be whole: every input
// there, every variable written before it is read.
VerifiesMatcher VerifiesFor(int nranks);
// The same with other options: parameters that are distributed, gradients that are summed.
// `options.original` is not looked at.
VerifiesMatcher VerifiesFor(VerifyOptions options);

// Computes on its ranks what `original` computes on one device with all their batches: rules W601
// to W604, and those of layer 1, which they rest on. `options` says for how many ranks; else the
// program does.
VerifiesMatcher IsEquivalentTo(const Program& original, VerifyOptions options = {});

// Matches a program with an op of a type; conditions on the op are added to it. Of several ops, one
// has to meet all conditions, or as many as Times says.
class HasOpMatcher {
 public:
  using is_gtest_matcher = void;

  explicit HasOpMatcher(std::string type) : type_(std::move(type)) {}

  HasOpMatcher WithRing(int ring_id) const { return WithAttr("ring_id", ring_id); }
  // The variable is one of those of the slot.
  HasOpMatcher WithInput(std::string slot, std::string variable) const;
  HasOpMatcher WithOutput(std::string slot, std::string variable) const;
  // INT and LONG are compared alike, FLOAT and FLOAT64 too (a FLOAT with the nearest float).
  HasOpMatcher WithAttr(std::string name, int value) const;
  HasOpMatcher WithAttr(std::string name, int64_t value) const;
  HasOpMatcher WithAttr(std::string name, double value) const;
  HasOpMatcher WithAttr(std::string name, bool value) const;
  HasOpMatcher WithAttr(std::string name, const char* value) const;
  HasOpMatcher WithAttr(std::string name, std::string value) const;
  HasOpMatcher WithAttr(std::string name, std::vector<int64_t> value) const;
  // The op's role is equal to these bits (proto/op_role.h).
  HasOpMatcher WithRole(int role) const;
  HasOpMatcher InBlock(int block) const;
  // Exactly so many ops; Times(0): none.
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

#endif  // WEFT_TRANSPILER_VERIFY_TESTING_MATCHERS_H_
