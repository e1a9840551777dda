#include "tools/cmd/elastic_run.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ops/schema/print_ops.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

absl::Status Refuse(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("weft launch --elastic: expected ", expected, ", found ", found));
}

}  // namespace

absl::Status ElasticRun::CheckFlags(const RunFlags& flags) {
  if (!flags.server.empty()) return Refuse("a run without parameter servers", "--server");
  // They are written as a whole, of what one process has seen.
  for (const auto& [flag, value] : {std::make_pair("--trace", &flags.trace),
                                    {"--profile", &flags.profile},
                                    {"--fetch_npz", &flags.fetch_npz}}) {
    if (!value->empty()) return Refuse("a run that writes no steps into one file", flag);
  }
  for (const auto& [flag, value] :
       {std::make_pair("--metrics", &flags.metrics), {"--save", &flags.save}}) {
    if (value->empty() || !AtomicFile::WritesDirectly(*value)) continue;
    return Refuse("a regular file, of which steps can be taken back",
                  absl::StrCat(flag, " ", *value));
  }
  return absl::OkStatus();
}

absl::Status ElasticRun::CheckProgram(const RunFlags& flags, const Program& main) {
  for (const Op op : AllOps(main)) {
    if (!PrintsValues(op.type())) continue;
    return absl::UnimplementedError(
        absl::StrCat(flags.main, ": ", op.DebugName(),
                     ": weft launch --elastic: expected a program that prints nothing, as steps "
                     "that run again would print again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ElasticRun::Start> ElasticRun::Agree(JobLink* link) {
  // Of the last generation, or of the one before, if the last one did not get so far.
  std::shared_ptr<KeptStates> of_step = kept_;
  std::set<int64_t> steps;
  if (kept_ != nullptr) steps = kept_->Steps();
  if (kept_ != nullptr && steps.empty() && kept_->former() != nullptr) {
    of_step = kept_->former();
    steps = of_step->Steps();
  }
  std::vector<std::string> texts = {
      absl::StrCat(prepared != nullptr ? "read" : "new", ",", absl::StrJoin(steps, ","))};
  if (link != nullptr) {
    WEFT_ASSIGN_OR_RETURN(texts, link->AllGather(texts[0]));
  }
  Start start;
  start.all_have_read = true;
  bool has_any = false;
  for (size_t p = 0; p < texts.size(); ++p) {
    const std::vector<std::string> words = absl::StrSplit(texts[p], ',', absl::SkipEmpty());
    start.all_have_read = start.all_have_read && words[0] == "read";
    std::set<int64_t> theirs, common;
    for (size_t i = 1; i < words.size(); ++i) {
      int64_t step = 0;
      if (absl::SimpleAtoi(words[i], &step)) theirs.insert(step);
    }
    has_any = has_any || !theirs.empty();
    std::set_intersection(steps.begin(), steps.end(), theirs.begin(), theirs.end(),
                          std::inserter(common, common.end()));
    steps = std::move(common);
  }
  if (steps.empty()) {
    if (has_any) {
      return absl::DataLossError(
          "the processes that are left have no step of which all have the states of all ranks");
    }
    kept_ = nullptr;
    return start;
  }
  start.step = *steps.rbegin();
  kept_ = std::move(of_step);
  WEFT_ASSIGN_OR_RETURN(start.host, kept_->Host(*start.step));
  return start;
}

absl::StatusOr<Checkpoint> ElasticRun::Resume(const World& world, const RunFlags& flags,
                                              int64_t step, int64_t end_step) const {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.end_step = end_step;
  checkpoint.nranks = world.size;
  checkpoint.seed = flags.run.seed;
  checkpoint.random.resize(world.size);
  checkpoint.own.resize(world.size);
  if (prepared != nullptr) checkpoint.buffers = prepared->buffers;
  std::set<std::string> names;
  for (int rank = world.first; rank < world.end(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(RankState state, kept_->Read(rank, step));
    for (const auto& [name, tensor] : state.values) names.insert(name);
    checkpoint.own[rank] = std::move(state.values);
    checkpoint.random[rank] = std::move(state.random);
    checkpoint.unset.insert(state.unset.begin(), state.unset.end());
  }
  for (const std::string& name : names) checkpoint.unset.erase(name);
  return checkpoint;
}

absl::Status ElasticRun::Begin(const World& world, JobLink* link, int64_t step,
                               const std::string& host) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<KeptStates> kept, KeptStates::Create(world, link));
  if (world.process() == 0) WEFT_RETURN_IF_ERROR(kept->Deliver(step, host));
  kept->SetFormer(std::move(kept_));
  kept_ = std::move(kept);
  return absl::OkStatus();
}

absl::Status ElasticRun::Deliver(int64_t step, const std::string& host) {
  if (!has_said_cost_) {
    PrintNote(absl::StrCat("--elastic: each rank keeps its last two states in memory, ",
                           kept_->bytes_of_rank(), " bytes"));
  }
  has_said_cost_ = true;
  return kept_->Deliver(step, host);
}

}  // namespace weft
