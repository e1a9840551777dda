// What process 0 knows of the gathers of a job.
#ifndef WEFT_EXECUTOR_JOBS_JOB_GATHERS_H_
#define WEFT_EXECUTOR_JOBS_JOB_GATHERS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// The first text of a gather sets the time by which all must have come. After it, the gather has
// failed for everybody, also for those that come later.
class JobGathers {
 public:
  using Clock = std::chrono::steady_clock;

  JobGathers(int num_processes, Clock::duration timeout)
      : num_processes_(num_processes), timeout_(timeout) {}

  enum class Outcome { kWaits, kComplete, kHasFailed };

  // Adds the text of a process. After kComplete, call Take.
  Outcome Add(int64_t number, int process, std::string text) {
    Gather& gather =
        gathers_.try_emplace(number, num_processes_, Clock::now() + timeout_).first->second;
    if (gather.has_failed) return Outcome::kHasFailed;
    std::optional<std::string>& place = gather.texts[process];
    if (!place.has_value()) ++gather.count;
    place = std::move(text);
    return gather.count == num_processes_ ? Outcome::kComplete : Outcome::kWaits;
  }

  // The texts of a complete gather, by process.
  std::vector<std::string> Take(int64_t number) {
    const auto it = gathers_.find(number);
    std::vector<std::string> texts;
    for (std::optional<std::string>& text : it->second.texts) texts.push_back(*std::move(text));
    gathers_.erase(it);
    return texts;
  }

  // Returns the numbers of gathers whose time is over now.
  std::vector<int64_t> FailLate(Clock::time_point now) {
    std::vector<int64_t> late;
    for (auto& [number, gather] : gathers_) {
      if (gather.has_failed || now < gather.deadline) continue;
      gather.has_failed = true;
      late.push_back(number);
    }
    return late;
  }

  // The processes that have not come, or have.
  std::vector<int> Missing(int64_t number) const { return With(number, false); }
  std::vector<int> Waiting(int64_t number) const { return With(number, true); }

 private:
  struct Gather {
    Gather(int num_processes, Clock::time_point deadline)
        : texts(num_processes), deadline(deadline) {}
    std::vector<std::optional<std::string>> texts;
    int count = 0;
    Clock::time_point deadline;
    bool has_failed = false;
  };

  std::vector<int> With(int64_t number, bool has_come) const {
    std::vector<int> processes;
    const Gather& gather = gathers_.at(number);
    for (int p = 0; p < num_processes_; ++p) {
      if (gather.texts[p].has_value() == has_come) processes.push_back(p);
    }
    return processes;
  }

  const int num_processes_;
  const Clock::duration timeout_;
  std::map<int64_t, Gather> gathers_;  // by number; neither complete nor forgotten
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_GATHERS_H_
