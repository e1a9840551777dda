// Jobs of real processes, for tests of groups.
#ifndef WEFT_EXECUTOR_JOBS_FORKED_JOB_H_
#define WEFT_EXECUTOR_JOBS_FORKED_JOB_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/jobs/job_link.h"

namespace weft::testing {

// Processes with ranks that are threads, connected by a link. Those that still run end with it.
class ForkedJob {
 public:
  using NewGroup = std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(GroupOptions)>;
  struct RankContext {
    CommunicatorGroup* group;
    JobLink* link;
    int rank;
    // Adds to the results of the process, at once.
    std::function<void(const std::string& text)> say;
  };
  // What a rank does; the text is its result.
  using Body = std::function<std::string(const RankContext&)>;

  // Must be called by a process of one thread.
  ForkedJob(int num_processes, GroupOptions options, const NewGroup& new_group, const Body& body);
  ~ForkedJob();
  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;

  void Signal(int process, int signal);
  // The results of the ranks of a process, which has ended or ends now, and "ended by signal N" if
  // so it did. Once for each process.
  std::string ResultsOf(int process);
  std::vector<std::string> Results();

 private:
  struct Process {
    pid_t pid;
    int results;
    bool has_ended;
  };

  GroupOptions options_;
  std::vector<Process> processes_;
};

// How a rank fails.
enum class Fault {
  kIsKilled,   // SIGKILL
  kIsStopped,  // SIGSTOP
  kThrows,     // reports an error, as a run does for an op that throws
  kDiverges,   // calls another collective than the others
};
inline constexpr Fault kFaults[] = {Fault::kIsKilled, Fault::kIsStopped, Fault::kThrows,
                                    Fault::kDiverges};
std::string FaultName(Fault fault);

// Sums over the ranks until a call fails, and returns its status. The victim fails `after_s`
// seconds after the first call, whatever it does then. `on_fault` is called right before.
absl::Status SumUntilFault(CommunicatorGroup* group, JobLink* link, int rank, bool is_victim,
                           Fault fault, double after_s, const std::function<void()>& on_fault);

// Seconds on a clock that all processes of the host share.
double SharedClock();

struct FaultOutcome {
  std::vector<std::string> errors;  // of the other ranks
  double seconds = 0;               // from the fault until the last of them knew
};
// Three processes of a rank each, one of which fails.
FaultOutcome RunWithFault(const ForkedJob::NewGroup& new_group, Fault fault, int victim,
                          double after_s);

// Expects that the other ranks ended within the limit, with errors that name the victim.
void ExpectTold(const FaultOutcome& outcome, Fault fault, int victim, double limit_s);

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_JOBS_FORKED_JOB_H_
