#include "transpiler/verify/local_schedule.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// So many steps of a schedule are looked at, more only until it has held twice.
constexpr int kSteps = 10000;
// Beyond so many steps a schedule is not followed.
constexpr int kMaxSteps = 1 << 22;

std::string DifferenceFrom(const AveragingSchedule& expected, ScalarSlice* slice) {
  const int64_t last =
      std::max<int64_t>(kSteps, int64_t{expected.first_step} + 2 * int64_t{expected.period});
  if (last > kMaxSteps) {
    return absl::StrCat("which would have to be followed for ", last, " steps, more than ",
                        kMaxSteps);
  }
  for (int64_t step = 1; step <= last; ++step) {
    const absl::StatusOr<double> holds = slice->RunStep();
    if (!holds.ok()) return absl::StrCat("which fails: ", holds.status().message());
    const bool is_due = step % expected.period == 0 && step >= expected.first_step;
    if ((*holds != 0) == is_due) continue;
    return absl::StrCat("which ", is_due ? "does not hold" : "holds", " in step ", step,
                        ", expected ", ToString(expected));
  }
  return "";
}

// A condition that decides: it holds again and again, and not always.
std::string ProblemOfAnySchedule(ScalarSlice* slice) {
  int times = 0, last = 0, longest_wait = 0, step = 0;
  while (step < kSteps || (times < 2 && step < kMaxSteps)) {
    const absl::StatusOr<double> holds = slice->RunStep();
    if (!holds.ok()) return absl::StrCat("which fails: ", holds.status().message());
    ++step;
    if (*holds == 0) continue;
    ++times;
    longest_wait = std::max(longest_wait, step - last);
    last = step;
  }
  if (times == 0 || times == step) return "which is the same in every step";
  if (step - last <= 2 * longest_wait && times > 1) return "";
  return absl::StrCat("which holds in step ", last, ", and then not until step ", step);
}

}  // namespace

std::string ProblemOfSchedule(ScalarSlice* slice,
                              const absl::optional<AveragingSchedule>& expected) {
  return expected.has_value() ? DifferenceFrom(*expected, slice) : ProblemOfAnySchedule(slice);
}

}  // namespace weft
