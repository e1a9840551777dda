// Variables that the host sets before every step by a schedule which the program keeps.
#ifndef WEFT_PROTO_HOST_SCHEDULES_H_
#define WEFT_PROTO_HOST_SCHEDULES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The attribute of a declaration that has the schedule, as tools/paddle/export_program.py writes
// it; in PIR, which has no declarations, of an op: NAME=SCHEDULE.
inline constexpr absl::string_view kScheduleAttr = "lr_schedule";

struct HostSchedule {
  std::string variable;
  std::string text;  // see docs/running.md
};

// Those of the persistable variables of the root block, in order. Texts are not checked.
// O(variables).
std::vector<HostSchedule> FindHostSchedules(const Program& program);

// Schedules with the same options have the same text: options sorted, numbers in one form. A text
// that is no list of names and options stays.
std::string CanonicalSchedule(const std::string& text);

}  // namespace weft

#endif  // WEFT_PROTO_HOST_SCHEDULES_H_
