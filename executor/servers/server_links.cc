#include "executor/servers/server_links.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/jobs/host_address.h"
#include "executor/jobs/job_token.h"

namespace weft {
namespace {

// Notes the first failure of a job while it is alive. Whoever listens next is told it again, as
// each new handler is, so nothing is lost when this takes the place of another handler, or leaves
// it.
class FailureWatch {
 public:
  explicit FailureWatch(JobLink* link) : link_(link) {
    link->OnFailure([this](const absl::Status& status) {
      status_ = status;
      has_failed_ = true;
    });
  }
  ~FailureWatch() { link_->OnFailure(nullptr); }

  bool has_failed() const { return has_failed_; }
  // OK: none.
  absl::Status status() const { return has_failed_ ? status_ : absl::OkStatus(); }

 private:
  JobLink* const link_;
  absl::Status status_;  // before has_failed_ is true
  std::atomic<bool> has_failed_{false};
};

// Of the process of servers, which all processes of the job are told. 0: it cannot listen.
int SharePort(JobLink* link, int server, int port) {
  const absl::StatusOr<std::vector<std::string>> ports = link->AllGather(absl::StrCat(port));
  int shared = 0;
  return ports.ok() && absl::SimpleAtoi((*ports)[server], &shared) ? shared : 0;
}

}  // namespace

absl::StatusOr<ServerLinks> LinkWithServers(const World& world, int num_workers, JobLink* link,
                                            double timeout_s) {
  ServerLinks links;
  const int num_clients = world.ProcessOf(num_workers - 1) + 1, self = world.process();
  if (link == nullptr || num_clients < 2 || num_clients == world.num_processes()) return links;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> networks,
                        link->AllGather(DescribeNetwork()));
  const bool is_one_network = IsOneNetwork(networks);
  const FailureWatch failure(link);
  for (int server = num_clients; server < world.num_processes(); ++server) {
    const std::string name = absl::StrCat("servers of process ", server);
    JobLinkOptions options;
    options.process = self == server ? 0 : self;
    options.num_processes = num_clients;
    options.job = name;
    options.token = link->TokenFor(name);
    options.timeout_s = timeout_s;
    options.connect_timeout_s = std::min(options.connect_timeout_s, timeout_s);
    options.is_over = [&failure] { return failure.has_failed(); };
    if (is_one_network) {
      options.address = absl::StrCat("unix:", SecretSocketName(options.token, name));
    } else {
      WEFT_ASSIGN_OR_RETURN(const std::string host, ChooseAddress(networks, server));
      options.address = absl::StrCat(host, ":0");
      options.share_port = [link, server](int port) { return SharePort(link, server, port); };
    }
    const bool is_client = self > 0 && self < num_clients;
    if (self != server && !is_client) {
      if (options.share_port) options.share_port(0);
      continue;
    }
    absl::StatusOr<std::unique_ptr<JobLink>> direct = NewJobLink(options);
    WEFT_RETURN_IF_ERROR(failure.status());
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("workers and ", name), direct.status()));
    links[server] = *std::move(direct);
  }
  return links;
}

}  // namespace weft
