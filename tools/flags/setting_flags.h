// The flags that say what programs are for, of commands that verify or look at them.
#ifndef WEFT_TOOLS_FLAGS_SETTING_FLAGS_H_
#define WEFT_TOOLS_FLAGS_SETTING_FLAGS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "proto/setting.h"

namespace weft {

struct SettingFlags {
  int nranks = 0;  // 0: not given
  std::vector<std::string> distributed_params;
  std::string feed_layout, param_attrs, assume;
  absl::optional<bool> summed_gradients, rounded_gradients;
  absl::optional<int> k_steps, begin_step, first_average;
  bool in_turn = false;
  std::string order;  // "streams", "events"; empty: as the file says
};

// Adds --order.
void AddOrderFlag(CLI::App* app, std::string* order);

// Adds the flags to a command; those about averaging, which are compared with an original, only if
// there is the flag `original` (else null).
void AddSettingFlags(CLI::App* app, SettingFlags* flags, CLI::Option* original);

// What a verdict rests on.
struct GivenSetting {
  Setting setting;
  // What is taken for granted, one line each, with the flag or "setting of the file" that says so:
  // how several ranks are fed, and, whatever the number of ranks, what else a file says that makes
  // the verifier expect something other than the reference values.
  std::vector<std::string> feeds, claims;
};

// The setting of programs that were read from `paths`, one for all ranks or one per rank: that of
// the files, in which flags replace what they say. `original` may be null.
// InvalidArgument, naming the flag or the path: flags, files and programs that contradict each
// other.
absl::StatusOr<GivenSetting> SettingFor(const SettingFlags& flags,
                                        absl::Span<const std::string> paths,
                                        absl::Span<const ConstProgramPair> ranks,
                                        const Program* original);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_SETTING_FLAGS_H_
