#include "transpiler/pipeline/claims.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string ToString(const AveragingSchedule& schedule) {
  return absl::StrCat(
      "every ", schedule.period, schedule.period == 1 ? " step" : " steps",
      schedule.first_step > 1 ? absl::StrCat(" from step ", schedule.first_step, " on") : "");
}

}  // namespace weft
