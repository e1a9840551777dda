// The cost of rewriting and verifying grows like the program.
#include <ctime>
#include <map>
#include <string>

#include "base/testing/test.h"
#include "tests/benchmarks/generated_program.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

// Processor time for a program of so many parameters, all in one bucket.
double Seconds(const std::string& mode, const std::map<std::string, std::string>& flags,
               int64_t parameters) {
  GeneratedProgramOptions generated;
  generated.num_gradients = parameters;
  generated.num_ops = 5 * parameters + 3;
  Program main = Program::Parse(GenerateProgram(generated)).value();
  Program startup = Program::Parse(GenerateStartup(generated)).value();
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = flags;
  options.cluster.nranks = 4;
  ProgramPair programs{&main, &startup};
  const std::clock_t begin = std::clock();
  WEFT_EXPECT_OK(Transpile(options, programs).status());
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Four times the parameters take 16 times as long if the time grows like their square.
void ExpectLinear(const std::string& mode, const std::map<std::string, std::string>& flags) {
  const double few = Seconds(mode, flags, 300), many = Seconds(mode, flags, 1200);
  EXPECT_LT(many, 7 * few) << mode;
}

TEST(LinearCost, OfShares) { ExpectLinear("zero", {{"stage", "1"}}); }

TEST(LinearCost, OfAverages) {
  ExpectLinear("local_sgd", {{"k_steps", "4"}, {"outer", "nesterov"}});
}

TEST(LinearCost, OfLowRank) { ExpectLinear("power_sgd", {{"rank_approximation", "2"}}); }

}  // namespace
}  // namespace weft::testing
