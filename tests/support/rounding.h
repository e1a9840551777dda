// How far rounding may carry a training run from the same run of another implementation.
//
// Two right implementations round differently: they add in other orders, and their functions (exp,
// tan) differ by up to 4 units in the last place (ops/vectorize.h). What becomes of that is a
// property of the program: one that takes the tangent near pi/2 multiplies it by a thousand in
// every step, one that divides a gradient by its size turns rounding into updates.
//
// It is measured. The run is repeated with each number that it begins with moved at random by up to
// 4 units in its last place: parameters, feeds, and constants of ops. What follows moves as it does
// for a function that differs by as much, and every later rounding falls otherwise. Bounds are
// kRoundingFactor times what the results moved.
#ifndef WEFT_TESTS_SUPPORT_ROUNDING_H_
#define WEFT_TESTS_SUPPORT_ROUNDING_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/run/feeder.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft::testing {

// Of a number: 4 units in the last place of fp32. Of half precision, one: kernels compute in fp32,
// and round.
inline constexpr double kMovedBy = 4 * 0x1p-23;
inline constexpr double kMovedByOfFp16 = 0x1p-10, kMovedByOfBf16 = 0x1p-7;
// Of few draws, the largest may be small: of 3 numbers drawn evenly from [-1, 1], none exceeds 1/4
// once in 64 times.
inline constexpr int kMovedRuns = 3;
inline constexpr double kRoundingFactor = 4;

// What a run begins with.
struct TrainingInputs {
  std::map<std::string, Tensor> params;
  FeedSource feeds;
  const KernelTable* kernels = &CpuKernels();
  double moved_by = kMovedBy;  // of params and feeds, by the type that the run computes in
};

// The inputs of a run that is moved; `run` is less than kMovedRuns.
TrainingInputs Moved(const TrainingInputs& inputs, int run);

struct TrainingResults {
  std::vector<std::vector<double>> losses;  // a series for each loss of each rank; by step
  std::map<std::string, Tensor> state;      // after the last step
};

using TrainingRun = std::function<absl::StatusOr<TrainingResults>(const TrainingInputs&)>;

class RoundingBounds {
 public:
  // Of results that `train` gave: trains kMovedRuns times. An error of `train`; FailedPrecondition
  // if rounding leaves less than three digits of the first loss: nothing can be compared then.
  static absl::StatusOr<RoundingBounds> Measure(const TrainingInputs& inputs,
                                                TrainingResults results, const TrainingRun& train);
  // Trains once more before.
  static absl::StatusOr<RoundingBounds> Measure(const TrainingInputs& inputs,
                                                const TrainingRun& train);

  // Of the run that nothing moves.
  const TrainingResults& results() const { return results_; }

  // By how much a loss may differ. Never decreases from step to step.
  double OfLoss(size_t series, size_t step) const { return losses_[series][step]; }
  // By how much each element of a variable may differ.
  std::vector<double> OfState(const std::string& name) const;

  // Tests that these losses of all steps are those of a reference.
  void ExpectLosses(size_t series, const std::vector<double>& found,
                    const std::vector<double>& expected) const;
  // The same of a variable after the last step, of which `expected` may have the first elements
  // alone.
  void ExpectState(const std::string& name, const Tensor& found, const Tensor& expected) const;

 private:
  TrainingResults results_;
  std::vector<std::vector<double>> losses_;
  std::map<std::string, std::vector<Tensor>> moved_state_;  // by run
};

// The elements as numbers: of fp16, fp32, fp64, integers or bool.
std::vector<double> AsDoubles(const Tensor& tensor);

// By how much each element of `found` may differ, where runs that were moved gave `moved`. One that
// hardly moved may do so as others of the n elements do: the largest of n normal numbers is about
// sqrt(2 ln n) times the root of their mean square.
std::vector<double> RoundingBoundsOf(const Tensor& found, const std::vector<Tensor>& moved);

// The tensor with each fp32 number moved at random by up to `by` of itself. Equal numbers move
// alike in a run, wherever they are: ties stay ties, and copies copies. Numbers of at most 12
// binary digits are exact (0, 1, counts, masks), and stay.
Tensor MovedByRounding(const Tensor& tensor, int run, double by = kMovedBy);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_ROUNDING_H_
