// The end of a job link: connections in a star.
#ifndef WEFT_EXECUTOR_JOBS_STAR_LINK_H_
#define WEFT_EXECUTOR_JOBS_STAR_LINK_H_

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/jobs/job_connection.h"
#include "executor/jobs/job_dispatcher.h"
#include "executor/jobs/job_gathers.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/job_messages.h"
#include "executor/jobs/job_token.h"
#include "executor/jobs/process_state.h"

namespace weft {

// Connections form a star with process 0 in its center, which relays what the others send to each
// other, gathers, and decides which failure was the first.
//
// The thread of the link runs the connections; what it alone uses has no lock. Handlers run on the
// thread of the dispatcher, so that heartbeats go on.
class StarLink : public JobLink {
 public:
  StarLink(const JobLinkOptions& options, const ProcessIdentity& self);
  ~StarLink() override;

  // Waits until all processes have come.
  absl::Status Join();

  int process() const override { return options_.process; }
  int num_processes() const override { return options_.num_processes; }
  bool is_one_host() const override { return is_one_host_; }
  std::string TokenFor(absl::string_view name) const override {
    return token_.empty() ? "" : TokenOfPart(token_, name);
  }

  absl::StatusOr<std::vector<std::string>> AllGather(std::string text) override {
    Gathered texts = GatherFor(Receivers::kAll, num_gathers_++, std::move(text));
    if (texts.ok() && static_cast<int>(texts->size()) != num_processes()) {
      return absl::InternalError("process 0 gathers for itself where this one gathers for all");
    }
    return texts;
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string text) override {
    return GatherFor(Receivers::kCenter, num_gathers_++, std::move(text));
  }
  void Send(int process, Topic topic, std::string message) override;
  void Listen(Topic topic, Handler handler) override {
    dispatcher_.Listen(topic, std::move(handler));
  }
  void Abort(int rank, const absl::Status& status) override;
  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    dispatcher_.OnFailure(std::move(handler));
  }
  absl::Status Finish() override;

 private:
  using Clock = std::chrono::steady_clock;

  // How often peers are looked at. Silence and stops are counted in such ticks, so that a process
  // that was itself stopped does not blame the others when it goes on.
  static constexpr std::chrono::milliseconds kTick = kLookForStoppedEvery;
  // What process 0 decides after a timeout arrives within this time.
  static constexpr std::chrono::seconds kAnswerTime{5};

  static Clock::duration Seconds(double s) {
    constexpr double kNever = 1e8;  // years
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::clamp(s, 0.0, kNever)));
  }

  // Another process, as this one sees it.
  struct Peer {
    std::shared_ptr<JobConnection> connection;  // null before it has come, and after its end
    std::optional<JobHello> hello;              // of all, once all have come
    bool is_watched = false;                    // the system says whether it runs
    bool has_finished = false;                  // process 0 knows
    bool is_lost = false;                       // it does not answer
    uint64_t num_reads = 0;
    int silent_ticks = 0;
    int stopped_ticks = 0;
    int gone_ticks = 0;
  };
  // One that has not greeted yet, or was refused.
  struct Stranger {
    std::shared_ptr<JobConnection> connection;
    Clock::time_point deadline;
    std::string their_nonce, my_nonce;  // once they are exchanged
    bool knows_token = false;
    bool is_refused = false;
  };
  using Gathered = absl::StatusOr<std::vector<std::string>>;

  bool is_center() const { return options_.process == 0; }
  // "process 1 (rank 1, pid 4711 on host a)"
  std::string Describe(int process) const;
  std::string Describe(const std::vector<int>& processes) const;

  static int64_t HeartbeatTicks(double lost_after_s);
  void RunThread();
  void StartTimer();
  void OnTick();
  void Close();
  void CheckClosed();

  // Joining.
  std::string SocketNameFor(const std::string& token) const;
  absl::StatusOr<JobTokenText> ReadTokenFile();
  // Waits a little for the address, which another process has. False: it is too late for that.
  bool WaitForAddress();
  void Accept();
  void Start(const std::shared_ptr<JobConnection>& connection);
  std::list<Stranger>::iterator FindStranger(const JobConnection* connection);
  // Drops the oldest that has not proved to know the token. False: there is none.
  bool DropUnproved();
  // Of one that does not prove to be of the job.
  void Drop(std::list<Stranger>::iterator stranger);
  void OnGreeting(JobConnection* connection, const JobMessage& message);
  // Returns whether the message is one of an exchange of proofs as it must be, and answers it.
  bool Prove(Stranger* stranger, const JobMessage& message);
  void OnHello(std::list<Stranger>::iterator stranger, JobHello hello);
  void AddPeer(int process, JobHello hello, std::shared_ptr<JobConnection> connection);
  void Welcome();
  absl::Status TakeWelcome(absl::string_view body);
  void StopListening();
  void HaveJoined(bool is_one_host);
  // ": 3 connections did not know the token of the job"; empty: none.
  std::string DroppedText() const;
  void NoteDifferences() const;

  // Messages.
  JobMessage Make(JobMessageType type, int to, int64_t number, std::string body) const {
    return MakeJobMessage(type, options_.process, to, number, std::move(body));
  }
  // Through process 0, if this is another.
  void SendTo(int process, JobMessage message);
  // To all at the other ends of connections.
  void SendToAll(JobMessageType type, int64_t number, std::string body, int except = kNobody);
  void OnMessage(int from, JobMessage message);
  void OnTopic(int from, JobMessage message);
  void OnEnd(int process, const std::string& reason);

  // Gathers.
  enum class Receivers { kAll, kCenter };
  Gathered GatherFor(Receivers receivers, int64_t number, std::string text);
  void AddToGather(int64_t number, int process, std::string text);
  void SetGathered(int64_t number, Gathered gathered);
  absl::Status LateGather(int64_t number) const;

  // Failures.
  void CheckPeer(int process);
  void Lose(int process, absl::string_view what);
  // This process has found a failure; `except` has told it.
  void Fail(const absl::Status& failure, int except = kNobody);
  void TellFailure(const absl::Status& failure, int except);
  void SetFailure(const absl::Status& failure);

  static constexpr int kNobody = -1;

  const JobLinkOptions options_;
  std::string token_;  // set before Join returns; empty: there is one process
  const int64_t heartbeat_ticks_;
  JobHello self_;
  bool is_one_host_ = true;  // set before Join returns
  int64_t num_gathers_ = 0;

  // Of the thread of the link.
  asio::io_context io_;
  asio::steady_timer timer_;
  JobAcceptor acceptor_;
  std::vector<Peer> peers_;        // by process
  std::list<Stranger> strangers_;  // the oldest first
  int64_t num_dropped_ = 0;
  bool has_noted_address_ = false;
  bool has_noted_token_file_ = false;
  std::unique_ptr<JobTokenFile> token_file_;  // of process 0, until all have come
  JobGathers gathers_;                        // of process 0
  std::set<int64_t> kept_;  // of process 0: the numbers of gathers whose texts only it gets
  Clock::time_point join_deadline_;
  int64_t num_ticks_ = 0;
  bool is_joining_ = true;
  bool has_failed_ = false;
  absl::Status first_failure_;  // as process 0 has told it
  bool is_done_ = false;        // all have finished
  bool is_closing_ = false;     // the destructor runs

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_joined_ = false;
  absl::Status failure_;                                // the first that this process knew
  std::map<int64_t, std::optional<Gathered>> waiting_;  // by number of a gather
  bool is_closed_ = false;                              // no connection is open

  JobDispatcher dispatcher_;  // after what its handlers use
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_STAR_LINK_H_
