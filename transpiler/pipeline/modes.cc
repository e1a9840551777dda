#include "transpiler/pipeline/modes.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

const std::vector<Mode>& Modes() {
  static const auto* modes = new std::vector<Mode>{
      {"none", "reads, verifies and writes: a copy, or a change of format", {}, {}},
      {"grad_allreduce",
       "data parallel: every gradient is summed over the ranks before it is used",
       {{"comm-init", {}, {"nrings"}},
        {"broadcast-params", {}, {"nrings"}},
        {"scale-loss-grad", {}, {"scale"}},
        {"grad-all-reduce", {}, {"nrings", "scale"}}},
       // Paddle's class has two rings and always scales the loss's gradient.
       {{"comm-init", {{"nrings", "2"}}, {"nrings"}},
        {"broadcast-params", {{"nrings", "2"}}, {"nrings"}},
        {"scale-loss-grad", {{"scale", "loss_grad"}}, {}},
        {"paddle-grad-all-reduce", {{"nrings", "2"}}, {"nrings"}}}},
  };
  return *modes;
}

namespace {

// Flags that passes read in their context.
constexpr absl::string_view kContextFlags[] = {"nranks", "endpoints", "rank", "current_endpoint",
                                               "distributed_params"};

}  // namespace

absl::StatusOr<std::vector<PassSpec>> ExpandMode(absl::string_view mode, Dialect dialect,
                                                 const std::map<std::string, std::string>& flags) {
  const auto found =
      std::find_if(Modes().begin(), Modes().end(), [&](const Mode& m) { return m.name == mode; });
  if (found == Modes().end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown mode ", mode,
        "; there are: ", absl::StrJoin(Modes(), ", ", [](std::string* out, const Mode& m) {
          out->append(m.name);
        })));
  }
  std::set<std::string> taken;
  std::vector<PassSpec> pipeline;
  for (const ModePass& pass : dialect == Dialect::kPaddle ? found->paddle : found->weft) {
    PassSpec spec{pass.pass, pass.options};
    for (const std::string& flag : pass.flags) {
      const auto given = flags.find(flag);
      if (given == flags.end()) continue;
      taken.insert(flag);
      const auto preset = std::find_if(spec.options.begin(), spec.options.end(),
                                       [&](const auto& option) { return option.first == flag; });
      if (preset != spec.options.end()) {
        preset->second = given->second;
      } else {
        spec.options.push_back(*given);
      }
    }
    pipeline.push_back(std::move(spec));
  }
  if (!pipeline.empty()) taken.insert(std::begin(kContextFlags), std::end(kContextFlags));
  for (const auto& [flag, value] : flags) {
    if (taken.count(flag) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", mode, " does not read --", flag,
                     dialect == Dialect::kPaddle ? " in the paddle dialect" : ""));
  }
  return pipeline;
}

}  // namespace weft
