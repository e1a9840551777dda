// Connections between workers and parameter servers.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_LINKS_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_LINKS_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"

namespace weft {

// By process of servers, a link of that process with those of workers, but for process 0 of the
// job. In it, the process of servers is process 0, and workers have the numbers that they have in
// the job. A process has the links of which it is one end.
using ServerLinks = std::map<int, std::unique_ptr<JobLink>>;

// Connects them, so that their messages do not pass through process 0 of the job. Process 0 needs
// no link: that of the job has it. All processes of `link` call this at the same point; null: the
// job has one process. `world`: the workers, `num_workers` of them, then the servers, in other
// processes. Who fails is told by the link of the job. Nothing where process 0 alone has workers.
//
// The errors of NewJobLink, within `timeout_s`, and those of the link of the job.
absl::StatusOr<ServerLinks> LinkWithServers(const World& world, int num_workers, JobLink* link,
                                            double timeout_s);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_LINKS_H_
