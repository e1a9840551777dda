#include "tools/cmd/memory_advice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/collective_bytes.h"
#include "ops/schema/communication_ops.h"
#include "tools/inspect/program_stats.h"
#include "tools/inspect/run_memory.h"
#include "transpiler/modes.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

constexpr int64_t kDefaultBatch = 32;

struct Need {
  int64_t bytes = 0;  // at once
  double sent = 0;    // bytes in a step
  bool is_predicted = true;
  int64_t num_unknown = 0;  // variables that `bytes` omits
};

// Predicts, or estimates where an op has no kernel.
Need NeedOf(const Program& program, int64_t batch, int nranks) {
  const absl::StatusOr<MemoryEstimate> predicted = PredictRunMemory(program, batch);
  const ProgramStats stats = ComputeProgramStats(program, batch);
  Need need;
  need.is_predicted = predicted.ok();
  need.bytes =
      predicted.ok() ? predicted->memory.kept + predicted->memory.arena : stats.peak_memory.bytes;
  need.num_unknown = predicted.ok() ? predicted->num_unknown : stats.peak_memory.num_unknown;
  for (const auto& [key, totals] : stats.collectives) {
    const CollectiveOp* const collective = FindCollectiveOp(key.op_type);
    if (collective == nullptr) continue;
    const auto period = static_cast<double>(std::max<int64_t>(key.period, 1));
    need.sent += SentPerByte(collective->kind, nranks) * static_cast<double>(totals.bytes) / period;
  }
  return need;
}

// Sharding cuts buckets.
bool IsNoBuckets(absl::string_view flag, absl::string_view value) {
  return flag == "buckets" && value == "none";
}

absl::StatusOr<Need> NeedOfStage(const TranspileFlags& flags, const ProgramPair& original,
                                 int stage, int64_t batch, int nranks) {
  Program main = *original.main, startup = *original.startup;
  TranspileOptions options = flags.options;
  WEFT_ASSIGN_OR_RETURN(const Mode* const zero, FindMode("zero"));
  options.mode = zero->name;
  options.passes.clear();
  options.verification = Verification::kNever;
  options.on_result = nullptr;
  options.observer = nullptr;
  options.mode_flags = {{"stage", absl::StrCat(stage)}};
  for (const auto& [flag, value] : flags.options.mode_flags) {
    const bool is_read = absl::StrContains(zero->pipelines[0].passes, absl::StrCat("$", flag));
    if (is_read && !IsNoBuckets(flag, value)) options.mode_flags.emplace(flag, value);
  }
  ProgramPair programs{&main, &startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, programs).status());
  return NeedOf(main, batch, nranks);
}

}  // namespace

absl::optional<Said> SaidOfMemory(const TranspileFlags& flags, const ProgramPair& original,
                                  const Program& written, const Setting& setting) {
  const int64_t batch = flags.batch.value_or(kDefaultBatch);
  const int nranks = setting.nranks.value_or(1);
  const Need now = NeedOf(written, batch, nranks);
  const int64_t limit = *flags.rank_memory;
  if (now.bytes <= limit && now.num_unknown == 0) return absl::nullopt;
  std::string text =
      absl::StrCat(flags.in, ": a step takes ", now.bytes, " bytes on a rank (",
                   now.is_predicted ? "predicted" : "estimated", ", a batch of ", batch);
  if (now.num_unknown > 0) {
    absl::StrAppend(&text, "; not counted: ", now.num_unknown, " variables of unknown size");
  }
  absl::StrAppend(&text, "), and option:rank_memory is ", limit);
  if (now.bytes <= limit) return Said{Severity::kNote, text};
  // Sharding is another algorithm than averages of parameters.
  if (setting.averaging.has_value()) return Said{Severity::kWarning, text};
  const auto say = [&](absl::string_view what) {
    absl::StrAppend(&text, "; ", what);
    return Said{Severity::kWarning, text};
  };
  if (original.startup == nullptr) {
    return say("option:mode zero shares the training state out; it needs option:startup_in");
  }
  if (nranks < 2) {
    return say("option:mode zero shares the training state out; it needs option:nranks, 2 or more");
  }
  absl::optional<Need> least;
  int of = 0;
  for (const int stage : {1, 2, 3}) {
    const absl::StatusOr<Need> need = NeedOfStage(flags, original, stage, batch, nranks);
    if (!need.ok() && !least.has_value()) {
      return say(absl::StrCat("option:mode zero: ", need.status().message()));
    }
    if (!need.ok()) continue;
    if (least.has_value() && need->bytes >= least->bytes) continue;
    least = *need;
    of = stage;
    if (need->bytes <= limit) break;
  }
  if (least->bytes >= now.bytes) return say("no stage of option:mode zero takes less");
  std::string stage = absl::StrCat("option:mode zero option:stage ", of);
  for (const auto& [flag, value] : flags.options.mode_flags) {
    if (IsNoBuckets(flag, value)) absl::StrAppend(&stage, " without option:", flag, " ", value);
  }
  const std::string sends = absl::StrCat(" bytes and sends ", std::llround(least->sent),
                                         " bytes in a step instead of ", std::llround(now.sent));
  return least->bytes <= limit ? say(absl::StrCat(stage, " takes ", least->bytes, sends))
                               : say(absl::StrCat("no stage of option:mode zero fits: ", stage,
                                                  " takes least, ", least->bytes, sends));
}

}  // namespace weft
