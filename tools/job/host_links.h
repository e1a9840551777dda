// Links between the launchers of a job that is on several hosts.
#ifndef WEFT_TOOLS_JOB_HOST_LINKS_H_
#define WEFT_TOOLS_JOB_HOST_LINKS_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/jobs/job_link.h"

namespace weft {

// Of one launcher. Hosts have numbers from 0, each has one launcher, and all start equally many
// processes, which are numbered by host.
struct HostOptions {
  int hosts = 1;
  int host = 0;
  // Where the processes meet: "HOST:PORT", of host 0. The launcher there listens for the one of
  // host k at PORT + k.
  std::string address;
  std::string token;  // of the job
};

// Launcher 0 has a link to each of the others, and they have one to it. A link ends when its other
// launcher does, or has sent nothing for 8 s.
class HostLinks {
 public:
  using OnNote = std::function<void(const std::string&)>;

  // Waits for the other launchers. `texts` are what they say, by host; where this is not launcher
  // 0, of that and of itself. `is_over`, `on_note`: JobLinkOptions. InvalidArgument for a bad
  // address; the errors of NewJobLink.
  static absl::StatusOr<std::unique_ptr<HostLinks>> Connect(const HostOptions& options,
                                                            const std::string& text,
                                                            const std::function<bool()>& is_over,
                                                            const OnNote& on_note,
                                                            std::vector<std::string>* texts);
  HostLinks(const HostLinks&) = delete;
  HostLinks& operator=(const HostLinks&) = delete;
  ~HostLinks();

  void Send(int host, std::string text);

  // What a launcher has said, or that the link to it has ended.
  struct Event {
    int host = 0;
    std::string text;
    absl::Status end;
  };
  // Readable when there are events. Take returns them in order.
  int file() const { return file_; }
  std::vector<Event> Take();

  // Waits until the other launchers call it, too, and have all that was sent, or are lost. False:
  // `is_over` has said true before, and the links have ended.
  bool Finish(const std::function<bool()>& is_over);

 private:
  HostLinks() = default;
  void Add(Event event);

  int file_ = -1;                                // eventfd
  std::vector<std::unique_ptr<JobLink>> links_;  // by host; null: none
  std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_HOST_LINKS_H_
