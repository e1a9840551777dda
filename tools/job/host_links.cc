#include "tools/job/host_links.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// The address with a later port.
absl::StatusOr<std::string> AddressOf(const std::string& address, int host) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port + host > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--at ", address, ": expected HOST:PORT, with a port from 1 to ", 65535 - host));
  }
  return absl::StrCat(address.substr(0, colon), ":", port + host);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostLinks>> HostLinks::Connect(const HostOptions& options,
                                                              const std::string& text,
                                                              const std::function<bool()>& is_over,
                                                              const OnNote& on_note,
                                                              std::vector<std::string>* texts) {
  auto links = std::unique_ptr<HostLinks>(new HostLinks());
  HostLinks* const self = links.get();
  self->file_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (self->file_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  self->links_.resize(options.hosts);
  texts->assign(options.hosts, "");
  (*texts)[options.host] = text;
  for (int host = 1; host < options.hosts; ++host) {
    if (options.host > 0 && options.host != host) continue;
    const int other = options.host == 0 ? host : 0;
    JobLinkOptions link;
    link.process = options.host == 0 ? 0 : 1;
    link.num_processes = 2;
    link.job = absl::StrCat("launchers 0 and ", host, " of ", options.hosts);
    link.token = options.token;
    link.is_over = is_over;
    link.on_note = on_note;
    WEFT_ASSIGN_OR_RETURN(link.address, AddressOf(options.address, host));
    absl::StatusOr<std::unique_ptr<JobLink>> made = NewJobLink(link);
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("the launcher of host ", other), made.status()));
    JobLink* const added = (self->links_[other] = *std::move(made)).get();
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> both, added->AllGather(text));
    (*texts)[other] = both[1 - link.process];
    added->OnFailure([self, other](const absl::Status& status) { self->Add({other, "", status}); });
    added->Listen(JobLink::Topic::kOrder, [self, other](int, std::string said) {
      self->Add({other, std::move(said), absl::OkStatus()});
    });
  }
  return links;
}

HostLinks::~HostLinks() {
  links_.clear();  // nothing is added any more
  if (file_ >= 0) close(file_);
}

void HostLinks::Send(int host, std::string text) {
  // The other launcher is process 0 of the link, unless this one is.
  JobLink* const link = links_[host].get();
  link->Send(1 - link->process(), JobLink::Topic::kOrder, std::move(text));
}

void HostLinks::Add(Event event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(std::move(event));
  eventfd_write(file_, 1);
}

std::vector<HostLinks::Event> HostLinks::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(file_, &count);
  return std::exchange(events_, {});
}

bool HostLinks::Finish(const std::function<bool()>& is_over) {
  const auto finished = std::async(std::launch::async, [this] {
    for (const std::unique_ptr<JobLink>& link : links_) {
      if (link != nullptr) link->Finish().IgnoreError();  // all is known that matters
    }
  });
  while (finished.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (!is_over()) continue;
    for (const std::unique_ptr<JobLink>& link : links_) {
      if (link != nullptr) link->Abort(0, absl::CancelledError("the launcher was stopped"));
    }
    return false;
  }
  return true;
}

}  // namespace weft
