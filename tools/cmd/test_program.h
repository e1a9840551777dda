// Test programs: what weft eval evaluates, weft run while it trains, and programs that train in
// another language.
#ifndef WEFT_TOOLS_CMD_TEST_PROGRAM_H_
#define WEFT_TOOLS_CMD_TEST_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/run/result_queue.h"
#include "executor/run/runner.h"
#include "ops/tensor.h"
#include "proto/program.h"
#include "tools/cmd/evaluation.h"
#include "tools/files/params_input.h"
#include "tools/flags/said.h"

namespace weft {

struct TestFlags {
  std::string main, startup;
  std::string feeds, feed_layout;
  std::string layout_of_training;  // counts before what the file says; may have other variables
  absl::optional<int64_t> batches;
  int ranks = 1;
  bool ema = false;
  RunOptions run;  // of each rank, which runs by itself
  std::function<void(const Said&)> say = [](const Said& said) { Print("weft eval", said); };
};

// A test program, what is evaluated of it, and the batches, if the flags name a file.
struct TestProgram {
  absl::optional<Program> main, startup;
  FeedSource feeds;
  int64_t batches = 0;
  Metrics metrics;
};

// Reads what the flags name; `main` and `startup`, where there are any, are in memory already. Says
// which feeds are left. Errors begin with the path of a file: those of FindMetrics; and, for
// several ranks, FailedPrecondition if the program communicates, or if a batch leaves values to the
// next.
absl::StatusOr<TestProgram> ReadTestProgram(const TestFlags& flags, TestProgram given);

// The values with which the evaluation begins, of those that training has; the names of the others
// are in the result, too. Metrics begin to count at zero. With flags.ema, parameters have their
// moving averages. InvalidArgument if a parameter is missing, and the errors of UseMovingAverages.
absl::StatusOr<ParamsInput> TestParams(const TestFlags& flags, const TestProgram& test,
                                       std::map<std::string, Tensor> values);

// The errors of TestParams, as far as declarations tell them, for the values of a program that
// trains.
absl::Status CheckTestParams(const TestFlags& flags, const TestProgram& test,
                             const Program& trains);

// The same without values of training: the startup program makes the parameters.
absl::StatusOr<ParamsInput> StartParams(const TestFlags& flags, const TestProgram& test);

// Gives parameters of `program` the moving averages that the training program of Paddle's
// ExponentialMovingAverage keeps of them: `<parameter>_ema_<number>` divided by 1 - decay^steps, in
// fp32, as its apply program does. Where no average is of that name, all begin with one prefix: the
// name of the ExponentialMovingAverage. Averages of other parameters that `values` has are left
// out. A parameter without an average keeps its value. NotFound if `values` has no average at all;
// InvalidArgument for two of one parameter, for averages without a common prefix, and for one of
// another type. O(names of averages^2 + bytes).
absl::Status UseMovingAverages(const Program& program, std::map<std::string, Tensor>* values);

// Runs all batches, on flags.ranks threads. `on_batch`: each result, in any order; `on_counts`:
// what each thread leaves in persistable variables. Both are called by several threads at a time.
// Returns the error of the first rank that has one.
absl::Status RunTestProgram(
    const TestFlags& flags, const TestProgram& test, const std::map<std::string, Tensor>& params,
    const std::function<absl::Status(const StepResult&)>& on_batch,
    const std::function<void(const std::map<std::string, Tensor>&)>& on_counts);

// {"batches":2,"samples":40,"metrics":{"mean_0.tmp_0":0.5}} and a newline.
std::string TotalsJson(const Evaluation& evaluation);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TEST_PROGRAM_H_
