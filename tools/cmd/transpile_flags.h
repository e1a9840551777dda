// The flags of transpile.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_FLAGS_H_
#define WEFT_TOOLS_CMD_TRANSPILE_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "transpiler/transpile.h"
#include "transpiler/transpile_plan.h"

namespace weft {

inline constexpr char kAuto[] = "auto";  // a mode

// Stands for the number of a trainer in names of outputs, with --rank all.
inline constexpr char kRankInName[] = "{rank}";

struct TranspileFlags {
  std::string in, out, startup_in, startup_out, server_out;
  std::string explain, certificate, dump_dir, feed_layout, assume, profile, comm_table, param_attrs;
  std::string dialect = "weft";
  bool list_modes = false, list_passes = false;
  TranspileOptions options;
  absl::optional<int64_t> rank_memory;  // bytes
  absl::optional<int64_t> batch;        // rows of a rank's batch
  bool verify = true;
  bool all_ranks = false;  // --rank all
  bool to_files = true;    // else outputs are programs in memory, whose names messages have
  std::string chosen;      // what mode auto says, when the result is there
  // Flags that modes read, by name; given ones go to TranspileOptions.
  std::map<std::string, absl::optional<std::string>> mode_flags, context_flags;
  absl::StatusOr<TranspilePlan> plan = TranspilePlan();
};

void AddFlags(CLI::App& app, TranspileFlags& flags);

// Checks combinations of flags, and plans the passes, but in mode auto. Throws
// CLI::ValidationError.
void CheckFlags(TranspileFlags& flags);

// Whether the outputs are the inputs. Nothing that can be read is refused then: what is wrong with
// it is a line.
bool IsCopy(const TranspileFlags& flags);

// InvalidArgument for times that no pass goes by.
absl::Status CheckTimesAreRead(const TranspileFlags& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_FLAGS_H_
