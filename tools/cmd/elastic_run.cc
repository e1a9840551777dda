#include "tools/cmd/elastic_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/run/run_messages.h"
#include "ops/schema/print_ops.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

absl::Status Refuse(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("weft launch --elastic: expected ", expected, ", found ", found));
}

// InvalidArgument for flags that need what is lost with a process.
absl::Status CheckFlags(const RunFlags& flags) {
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

// Unimplemented for a program that prints.
absl::Status CheckProgram(const RunFlags& flags, const Program& main) {
  for (const Op op : AllOps(main)) {
    if (!PrintsValues(op.type())) continue;
    return absl::UnimplementedError(
        absl::StrCat(flags.main, ": ", op.DebugName(),
                     ": weft launch --elastic: expected a program that prints nothing, as steps "
                     "that run again would print again"));
  }
  return absl::OkStatus();
}

// The next message of a topic to which nobody listens otherwise, or the failure of the job.
// DeadlineExceeded; Internal: another process than `sender` has sent it.
absl::StatusOr<std::string> Receive(JobLink* link, JobLink::Topic topic, int sender,
                                    double timeout_s) {
  std::mutex mutex;
  std::condition_variable has_come;
  absl::optional<absl::StatusOr<std::string>> received;
  const auto set = [&](absl::StatusOr<std::string> what) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!received.has_value()) received = std::move(what);
    has_come.notify_all();
  };
  link->Listen(topic, [&](int process, std::string message) {
    if (process == sender) return set(std::move(message));
    set(absl::InternalError(
        absl::StrCat("expected states from process ", sender, ", found some from ", process)));
  });
  link->OnFailure([&](const absl::Status& failure) { set(failure); });
  {
    std::unique_lock<std::mutex> lock(mutex);
    has_come.wait_for(lock, std::chrono::duration<double>(timeout_s),
                      [&] { return received.has_value(); });
  }
  link->OnFailure(nullptr);
  link->Listen(topic, nullptr);
  if (received.has_value()) return *std::move(received);
  return absl::DeadlineExceededError(absl::StrCat(
      "process ", sender, " has given no states within ", timeout_s, " s (--timeout_s)"));
}

// What the run is about to do, for those who have seen processes go.
void PrintGeneration(const Generation& generation, const World& world, int64_t step) {
  std::vector<std::string> shares;
  for (int p = 0; p < world.num_processes(); ++p) {
    const int first = FirstRankOf(p, world.size, world.num_processes());
    const int last = FirstRankOf(p + 1, world.size, world.num_processes()) - 1;
    shares.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, " to ", last));
  }
  PrintNote(absl::StrCat("generation ", generation.number, " of the job goes on before step ", step,
                         "; ranks of processes: ", absl::StrJoin(shares, ", ")));
}

}  // namespace

absl::StatusOr<RunStart> ElasticRun::Prepare(const RunFlags& flags, JobLink* link,
                                             const Reader& read) {
  WEFT_RETURN_IF_ERROR(CheckFlags(flags));
  WEFT_ASSIGN_OR_RETURN(const Agreed agreed,
                        Agree(WorldOf(flags.run.nranks, link), link, flags.run.timeout_s));
  absl::optional<Checkpoint> resume;
  if (!agreed.all_have_read) {
    WEFT_ASSIGN_OR_RETURN(first_, read(flags, link));
    WEFT_RETURN_IF_ERROR(CheckProgram(first_->flags, *first_->files->main));
    resume = std::exchange(first_->resume, absl::nullopt);
    if (resume.has_value()) buffers_ = resume->buffers;
  } else if (!agreed.step.has_value() && !flags.resume.empty()) {
    WEFT_ASSIGN_OR_RETURN(resume, ReadCheckpoint(flags.resume));
  }
  RunStart start = *first_;
  RunOptions& run = start.flags.run;
  const World world = WorldOf(run.nranks, link);
  if (agreed.step.has_value()) {
    WEFT_ASSIGN_OR_RETURN(resume, Resume(world, *agreed.step));
    run.goes_on = *agreed.step > run.begin_step;
    run.begin_step = *agreed.step;
  }
  start.flags.reports = flags.reports;
  start.resume = std::move(resume);
  start.host = agreed.host;
  start.num_lines = generation.num_lines;
  if (flags.reports && generation.number > 1) PrintGeneration(generation, world, run.begin_step);
  return start;
}

int64_t ElasticRun::LastStep() const {
  const std::set<int64_t> steps = kept_ == nullptr ? std::set<int64_t>() : kept_->Steps();
  return steps.empty() ? 0 : *steps.rbegin();
}

absl::StatusOr<ElasticRun::Agreed> ElasticRun::Agree(const World& world, JobLink* link,
                                                     double timeout_s) {
  // Of the last generation, or of the one before, if the last one did not get so far.
  std::shared_ptr<KeptStates> of_step = kept_;
  std::set<int64_t> own;
  if (kept_ != nullptr) own = kept_->Steps();
  if (kept_ != nullptr && own.empty() && kept_->former() != nullptr) {
    of_step = kept_->former();
    own = of_step->Steps();
  }
  std::vector<std::string> texts = {
      absl::StrCat(first_.has_value() ? "read" : "new", ",", absl::StrJoin(own, ","))};
  if (link != nullptr) {
    WEFT_ASSIGN_OR_RETURN(texts, link->AllGather(texts[0]));
  }
  Agreed agreed;
  agreed.all_have_read = true;
  std::vector<std::set<int64_t>> steps(texts.size());
  for (size_t p = 0; p < texts.size(); ++p) {
    const std::vector<std::string> words = absl::StrSplit(texts[p], ',', absl::SkipEmpty());
    agreed.all_have_read = agreed.all_have_read && words[0] == "read";
    for (size_t i = 1; i < words.size(); ++i) {
      int64_t step = 0;
      if (!absl::SimpleAtoi(words[i], &step)) continue;
      steps[p].insert(step);
      agreed.step = std::max(step, agreed.step.value_or(step));
    }
  }
  given_.clear();
  if (!agreed.step.has_value()) {
    kept_ = nullptr;
    return agreed;
  }
  const auto lacks = [&](int process) { return steps[process].count(*agreed.step) == 0; };
  kept_ = lacks(world.process()) ? nullptr : std::move(of_step);
  if (kept_ != nullptr) {
    kept_->SetFormer(nullptr);  // nobody goes back further
    WEFT_ASSIGN_OR_RETURN(agreed.host, kept_->Host(*agreed.step));
  }
  int giver = 0;
  while (lacks(giver)) ++giver;
  if (world.process() == giver) {
    WEFT_RETURN_IF_ERROR(Give(world, lacks, *agreed.step, link, agreed.host));
  } else if (kept_ == nullptr) {
    WEFT_RETURN_IF_ERROR(Take(world, giver, link, timeout_s, &agreed.host));
  }
  return agreed;
}

absl::Status ElasticRun::Give(const World& world, const std::function<bool(int)>& lacks,
                              int64_t step, JobLink* link, const std::string& host) const {
  for (int p = 0; p < world.num_processes(); ++p) {
    if (!lacks(p)) continue;
    std::vector<RankState> states;
    for (int rank = FirstRankOf(p, world.size, world.num_processes());
         rank < FirstRankOf(p + 1, world.size, world.num_processes()); ++rank) {
      WEFT_ASSIGN_OR_RETURN(states.emplace_back(), kept_->Read(rank, step));
    }
    WEFT_ASSIGN_OR_RETURN(std::string message, StatesMessage(states));
    // The host's text, its length before it, and the states.
    link->Send(p, JobLink::Topic::kState, absl::StrCat(host.size(), ",", host, message));
  }
  return absl::OkStatus();
}

absl::Status ElasticRun::Take(const World& world, int giver, JobLink* link, double timeout_s,
                              std::string* host) {
  WEFT_ASSIGN_OR_RETURN(const std::string message,
                        Receive(link, JobLink::Topic::kState, giver, timeout_s));
  const absl::string_view text = message;
  size_t size = 0;
  const size_t comma = text.find(',');
  if (!absl::SimpleAtoi(text.substr(0, comma), &size) || size >= text.size() - comma) {
    return absl::InternalError(absl::StrCat("process ", giver, " gives no states"));
  }
  *host = std::string(text.substr(comma + 1, size));
  WEFT_ASSIGN_OR_RETURN(std::vector<RankState> states, ParseStates(text.substr(comma + 1 + size)));
  if (static_cast<int>(states.size()) != world.count) {
    return absl::InternalError(absl::StrCat("process ", giver, " gives the states of ",
                                            states.size(), " ranks, not of ", world.count));
  }
  for (int i = 0; i < world.count; ++i) given_[world.first + i] = std::move(states[i]);
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> ElasticRun::Resume(const World& world, int64_t step) const {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.end_step = first_->end_step;
  checkpoint.nranks = world.size;
  checkpoint.seed = first_->flags.run.seed;
  checkpoint.random.resize(world.size);
  checkpoint.own.resize(world.size);
  checkpoint.buffers = buffers_;
  std::set<std::string> names;
  for (int rank = world.first; rank < world.end(); ++rank) {
    const auto given = given_.find(rank);
    RankState state;
    if (given != given_.end()) {
      state = given->second;
    } else {
      WEFT_ASSIGN_OR_RETURN(state, kept_->Read(rank, step));
    }
    for (const auto& [name, tensor] : state.values) names.insert(name);
    checkpoint.own[rank] = std::move(state.values);
    checkpoint.random[rank] = std::move(state.random);
    checkpoint.unset.insert(state.unset.begin(), state.unset.end());
  }
  for (const std::string& name : names) checkpoint.unset.erase(name);
  return checkpoint;
}

absl::Status ElasticRun::Attach(JobLink* link, std::function<std::string()> knows,
                                std::function<absl::Status()> is_written, RunInputs* inputs,
                                RunOptions* options) {
  const World world = WorldOf(options->nranks, link);
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<KeptStates> kept, KeptStates::Create(world, link));
  given_.clear();
  kept->SetFormer(std::move(kept_));
  kept_ = std::move(kept);  // before anything fails: the link delivers to it
  if (world.process() == 0) WEFT_RETURN_IF_ERROR(kept_->Deliver(options->begin_step, knows()));
  options->kept = kept_.get();
  inputs->on_result = [add = std::move(inputs->on_result), last_rank = options->nranks - 1,
                       says_cost = !options->goes_on, kept = kept_.get(), knows = std::move(knows),
                       is_written = std::move(is_written)](const StepResult& result) mutable {
    WEFT_RETURN_IF_ERROR(add(result));
    if (result.rank < last_rank) return absl::OkStatus();
    if (std::exchange(says_cost, false)) {
      PrintNote(absl::StrCat("--elastic: each rank keeps its last two states in memory, ",
                             kept->bytes_of_rank(), " bytes"));
    }
    // Otherwise the run could go on from a later step, and nobody would write it.
    WEFT_RETURN_IF_ERROR(is_written());
    return kept->Deliver(result.step + 1, knows());
  };
  return absl::OkStatus();
}

}  // namespace weft
