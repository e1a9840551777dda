// Starts processes that have a socket to their launcher (GenerationClient).
#ifndef WEFT_TOOLS_JOB_CONTROLLED_LAUNCHER_H_
#define WEFT_TOOLS_JOB_CONTROLLED_LAUNCHER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/jobs/process_state.h"
#include "tools/job/host_links.h"
#include "tools/job/launcher.h"

namespace weft {

// Every process has WEFT_JOB_CONTROL, and the socket that it names.
class ControlledLauncher : public Launcher {
 public:
  ~ControlledLauncher() override;

 protected:
  // The others of a job take a process that is stopped for lost after kMaxStoppedLooks; they should
  // come first, as they then say why they wait.
  static constexpr int kMaxLooks = kMaxStoppedLooks + 1;

  // An attempt begins. Meets the launchers of other hosts, if there are any.
  absl::Status OnAttempt(const LaunchOptions& options) override;
  absl::StatusOr<int> FileOf(int rank, std::vector<std::string>* variables) override;
  int PolledFile() const override { return polled_; }
  void OnDone() override;

  // Starts another process in place of one that is reaped: it joins after the generation.
  absl::Status ReplaceAfter(int generation, Process* process);

  void SayTo(int rank, absl::string_view text);
  // Calls OnMessage for all that processes have said.
  void ReadControls();
  virtual void OnMessage(int rank, absl::string_view text) = 0;

  // Tells the launcher of a host how often the job was asked to stop, the last time by this signal.
  void SendStop(int host, int signal);
  // Takes what SendStop of another launcher says. False: it says something else.
  bool TakeStop(absl::string_view text);

  // What TakeStop has taken last.
  int stops_of_others() const { return stops_of_others_; }

  // Null: the job is on this host alone.
  HostLinks* links() const { return links_.get(); }

 private:
  void CloseAll();

  int stops_of_others_ = 0;
  int joins_after_ = 0;        // a generation; 0: a process that starts belongs to the first one
  int polled_ = -1;            // epoll
  std::vector<int> controls_;  // by rank of the job
  std::unique_ptr<HostLinks> links_;
};

// The launcher of a host that is not the first: starts processes, and tells the first launcher, an
// ElasticLauncher, what they say and how they end. Does what it says, which follows each loss of a
// process. When it is lost, all end.
class HostLauncher : public ControlledLauncher {
 protected:
  // The others go on without its processes, which would ask them to stop after SIGTERM.
  int DeathSignal() const override { return SIGKILL; }
  Time NextRound() const override { return look_stopped_at_; }
  void OnRound(Time now) override;
  bool HaveOthersEnded() const override { return lost_.empty(); }
  void OnStop(int signal) override;
  void OnEnd(Process* process) override;
  void OnMessage(int rank, absl::string_view text) override;

 private:
  void TakeEvents();
  void StartReplacements();
  void LookForStopped(Time now);

  Time look_stopped_at_;
  std::map<int, int> stopped_looks_;  // by rank
  // By rank of a process that is lost: after which generation another joins; none: launcher 0 has
  // not said whether one does.
  std::map<int, absl::optional<int>> lost_;
  bool is_alone_ = false;  // launcher 0 is lost
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_CONTROLLED_LAUNCHER_H_
