// What the processes of a run tell each other besides collectives: where they meet, whether they
// run the same plan, when the run stops, and that one of them has failed.
#ifndef WEFT_EXECUTOR_JOBS_JOB_LINK_H_
#define WEFT_EXECUTOR_JOBS_JOB_LINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// The first rank of a process, where processes share out the ranks of a run in order: as equally as
// they divide.
inline int FirstRankOf(int process, int num_ranks, int num_processes) {
  return static_cast<int>(int64_t{process} * num_ranks / num_processes);
}

// One process' end. Thread-safe, but for AllGather and Gather.
class JobLink {
 public:
  virtual ~JobLink() = default;

  virtual int process() const = 0;
  virtual int num_processes() const = 0;
  // Whether all processes run on one host, and see each other's process numbers.
  virtual bool is_one_host() const = 0;
  // A token for another link between processes of this one, the same in all
  // (JobLinkOptions::token); empty: the link has no secret.
  virtual std::string TokenFor(absl::string_view name) const { return ""; }

  // Returns the texts of all processes, by process. All processes call it equally often, each from
  // one thread at a time; the calls match by number. Waits for the others:
  //   DeadlineExceeded  a process has not called in time; names it. All that wait get this error,
  //                     and those that call later, too.
  //   Aborted, Unavailable  the first failure: see OnFailure. A call of Abort here counts, too.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(std::string text) = 0;

  // The same, and of the same numbering, but process 0 alone gets the texts. The others wait for
  // all processes, too, and get none.
  virtual absl::StatusOr<std::vector<std::string>> Gather(std::string text) = 0;

  // Who listens to a message. Messages between two processes on one topic arrive in order.
  enum class Topic {
    kStart,
    kResult,
    kStop,
    kState,
    kTrace,
    kPosition,
    kServer,
    kFeedback,
    kOrder,
    kKept
  };
  static constexpr int kNumTopics = 10;

  // Sends a message to a process, which may be this one. Returns at once.
  virtual void Send(int process, Topic topic, std::string message) = 0;

  // Receives the messages of a topic, those that have come before included: called by the thread of
  // the link, one at a time. It must not wait for other messages. Empty: they are kept until the
  // next call, and the former handler is not running any more.
  using Handler = std::function<void(int process, std::string message)>;
  virtual void Listen(Topic topic, Handler handler) = 0;

  // Tells all other processes that a rank of this one has failed. Only the first call counts.
  virtual void Abort(int rank, const absl::Status& status) = 0;

  // Receives the first failure elsewhere, once, also one that has come before, and that a former
  // handler has received; from the thread of the link, before messages that have come and wait for
  // it:
  //   Aborted      another process has called Abort: "rank 2 failed: ..."
  //   Unavailable  a process has ended, is stopped, or has sent nothing for too long: "process 1
  //                (rank 1, pid 4711 on host a) was killed or has ended", "... is stopped", ...
  // Empty: nobody listens any more, and the former handler is not running.
  virtual void OnFailure(std::function<void(const absl::Status&)> handler) = 0;

  // This process is done, and sends no more: its end is no failure any more. Waits until all are,
  // and until handlers have returned from the messages that the others sent before.
  // DeadlineExceeded, Aborted and Unavailable as above.
  virtual absl::Status Finish() = 0;
};

struct JobLinkOptions {
  int process = 0;
  int num_processes = 1;
  // Of the run, in each process: process p has the ranks p * local_ranks and following. For
  // messages.
  int local_ranks = 1;
  // Of the run, shared out as FirstRankOf says; 0: local_ranks for each process.
  int num_ranks = 0;
  // Of an elastic run (docs/reliability.md). A process of another generation is refused, and ends
  // nothing.
  int generation = 0;
  // Asked while processes come together: true ends that, with Unavailable. May be empty.
  std::function<bool()> is_over = nullptr;
  // Where process 0 listens: "host:port", or "unix:NAME" in the abstract namespace of the host's
  // sockets.
  std::string address;
  // The same text in all processes of the job. One that names another is refused.
  std::string job;
  // A secret of the job (CheckJobToken). Process 0 drops connections that do not prove to know it,
  // and tells them nothing.
  std::string token;
  // Instead of `token`: process 0 makes one, and keeps it in this file until all have come; the
  // others read it there (executor/jobs/job_token.h).
  std::string token_file;
  // With `token_file`: process 0 listens at a port that the system chooses, and the file says.
  bool any_port = false;
  // With `token`, instead of a port in `address`: process 0 listens at a port that the system
  // chooses. All processes call it once: process 0 with the port, or 0 if it cannot listen. Returns
  // what process 0 has given.
  std::function<int(int port)> share_port;
  // What may differ between processes, but is worth a note if it does, by name: "build", ...
  std::map<std::string, std::string> facts;
  // Is told, a line each: in process 0, of an address that another process has, of dropped
  // connections, and of facts that differ; in others, of a file of the token that is wrong, while
  // they wait for it. Before NewJobLink returns.
  std::function<void(const std::string&)> on_note;
  // Process 0 waits this long for its address and the others, and they for it.
  double connect_timeout_s = 60;
  // AllGather, Gather and Finish fail after this time.
  double timeout_s = 600;
  // A process on another host that sends nothing for this long has failed. On the same host the
  // system says whether it is stopped or gone.
  double lost_after_s = 8;
};

// Connects the processes through process 0. Returns when all have come.
//   InvalidArgument   a bad option, token or address, a process number that two have, another job
//                     or number of processes; names both
//   Aborted           another generation
//   DeadlineExceeded  processes that did not come; names them
//   Unavailable       process 0 cannot listen or be reached, or cannot write the file of the token;
//                     names the address or the file, and the reason; or is_over
absl::StatusOr<std::unique_ptr<JobLink>> NewJobLink(const JobLinkOptions& options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_LINK_H_
