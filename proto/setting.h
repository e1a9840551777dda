// What a rewritten program is for: the run, and what the rewrite claims of gradients and
// parameters.
#ifndef WEFT_PROTO_SETTING_H_
#define WEFT_PROTO_SETTING_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/averaging_schedule.h"
#include "proto/feed_layout.h"
#include "proto/op_assumptions.h"
#include "proto/program.h"

namespace weft {

// A tensor that a program for one device has; without a name: elements that nobody needs.
struct SharedTensor {
  std::string name;
  std::vector<int64_t> dims;

  friend bool operator==(const SharedTensor& a, const SharedTensor& b) {
    return a.name == b.name && a.dims == b.dims;
  }
};

// Gradients that travel as products of two thin matrices (PowerSGD).
struct LowRankGradients {
  // Before this step they travel whole. Steps count from 1.
  int first_step = 1;
  // Persistable variables of which each keeps what its rank has not sent of one gradient: what is
  // sent and what is kept are the gradient and what was kept before.
  std::set<std::string> residuals;

  friend bool operator==(const LowRankGradients& a, const LowRankGradients& b) {
    return a.first_step == b.first_step && a.residuals == b.residuals;
  }
};

// Made once, from what the user says and what passes claim; the file of the program carries it
// (Program::setting), so that whoever verifies or runs the program needs not say it again.
struct Setting {
  // What optimizers expect of gradients.
  enum class Reduction {
    kByLoss,  // sums over the ranks for losses that are sums over the batch, means for others
    kMean,
    kSum,
  };

  // None: read from the programs (ring set-up, attribute nranks); if they do not have it, they must
  // be right for any number.
  absl::optional<int> nranks;
  // The rank whose program it is, only where programs of ranks differ.
  absl::optional<int> rank;
  // Parameters that some of the ranks share: these ranks, ascending, by name. Their gradients are
  // reduced over these ranks, on a ring that connects no others.
  std::map<std::string, std::vector<int>> groups;
  // Parameters that are not replicated: each rank updates a part.
  std::set<std::string> distributed_params;
  // Persistable variables of which rank r has part r of n equal parts: of these tensors, flattened,
  // one after the other. With sharding (ZeRO), a variable for each bucket and state.
  std::map<std::string, std::vector<SharedTensor>> shares;
  // Persistable variables, each of which stands for several of a program for one device, which are
  // always equal, such as the powers of beta of the optimizers of a bucket.
  std::map<std::string, std::vector<std::string>> common;
  // How the batch is given to the ranks. Variables that are missing: as the program suggests
  // (FeedLayoutsOf).
  FeedLayouts feeds;
  Reduction reduction = Reduction::kByLoss;
  // The averaging schedule of LocalSGD; none: parameters are not averaged, or any schedule is.
  absl::optional<AveragingSchedule> averaging;
  absl::optional<LowRankGradients> low_rank;
  // Gradients may be rounded from fp32 to half precision and back.
  bool gradients_are_rounded = false;
  // The executor orders ops by data alone, and the collectives of each block by their places, as
  // Paddle 3 does with PIR.
  bool ordered_by_data = false;
  // What the user says of unregistered ops.
  OpAssumptions assumptions;

  friend bool operator==(const Setting& a, const Setting& b);
  friend bool operator!=(const Setting& a, const Setting& b) { return !(a == b); }
};

// Adds what passes say of variables that they make: shares, common, low_rank.
inline void AddShares(const Setting& from, Setting* to) {
  to->shares.insert(from.shares.begin(), from.shares.end());
  to->common.insert(from.common.begin(), from.common.end());
  if (from.low_rank.has_value()) to->low_rank = from.low_rank;
}

// "by_loss", "mean", "sum".
absl::string_view ToString(Setting::Reduction reduction);

// A JSON object on one line, without what is at its default; equal settings give equal text:
//   {"nranks":4,"feeds":{"x":"axis:0"},"reduction":"sum","averaging":{"period":4,"first_step":1}}
// Empty for a setting that says nothing.
std::string ToJson(const Setting& setting);

// The inverse of ToJson. InvalidArgument, naming the key, for other text, also for a key that this
// version does not know: it might weaken or strengthen a check.
absl::StatusOr<Setting> ParseSetting(absl::string_view json);

// InvalidArgument for a rank, or one of a group, that the number of ranks does not allow.
absl::Status CheckRanksOf(const Setting& setting);

// The setting in a program's file, with what the format of the file implies (ProgramOrigin). Errors
// begin with "setting of the file: ".
absl::StatusOr<Setting> SettingOf(const Program& program);
// Its assumptions; none if the setting cannot be read, which whoever reads the whole of it reports.
OpAssumptions AssumptionsOf(const Program& program);

}  // namespace weft

#endif  // WEFT_PROTO_SETTING_H_
