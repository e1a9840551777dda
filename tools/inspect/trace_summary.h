// What a step of a traced run spends its time on.
#ifndef WEFT_TOOLS_INSPECT_TRACE_SUMMARY_H_
#define WEFT_TOOLS_INSPECT_TRACE_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/communicators/communicator_decorators.h"
#include "executor/run/runner.h"
#include "executor/servers/server_traffic.h"
#include "transpiler/buckets/timeline.h"

namespace weft {

// Of rank 0. Steps after the first, which allocates; the first too if there is no other.
class TraceSummary {
 public:
  // `traffic` records the collectives of the ranks, and outlives this.
  explicit TraceSummary(const TrafficLog* traffic) : traffic_(*traffic) {}

  // One step of any rank; called by its thread, before its next step.
  void Add(const StepTrace& trace);

  // Means over the steps:
  //   trace of rank 0, means of 9 steps: step 3.1 ms, computation 2.0 ms, communication 1.5 ms, of
  //   which 1.0 ms exposed
  //   ring 0: 4 calls a step, 1048576 bytes sent, 1.5 ms, bus bandwidth 0.7 GB/s
  //   servers: 0.9 ms
  //   server 0: 2 pushes a step, 4100 bytes; 2 requests, 0 bytes; 2 answers, 4096 bytes
  // The times of a kind are those when any of its ops runs. Exposed is communication while no
  // computation runs. Bus bandwidth is what a link of a ring of ranks carries, as nccl-tests define
  // it. Empty without steps.
  std::string Lines() const;

 private:
  struct Times {
    double step = 0, computation = 0, communication = 0, exposed = 0;  // seconds
    std::map<int, double> rings;                                       // by number
    double servers = 0;  // of ops between workers and servers
  };

  static Times TimesOf(const StepTrace& trace);
  std::string ServerLines(int64_t steps, double to_ms) const;

  const TrafficLog& traffic_;
  int64_t num_steps_ = 0;  // all
  Times first_, sum_;      // of the first step; of the others
  std::map<int, TrafficLog::Traffic> traffic_before_, traffic_after_;
  std::vector<ServerTraffic> servers_before_, servers_after_;  // by server
};

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_TRACE_SUMMARY_H_
