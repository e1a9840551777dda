// The workers and parameter servers of a run.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_GROUP_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_GROUP_H_

#include <functional>
#include <string>

#include "executor/servers/server_messages.h"
#include "executor/servers/server_part.h"

namespace weft {

// What all of them know. Workers are the first ranks of the run, servers follow.
struct ServerGroup {
  int num_workers = 1;
  int num_servers = 1;
  ServedKeys keys;
  ServerPost* post = nullptr;
  double warn_after_s = 60;
  double timeout_s = 600;
  std::function<void(const std::string&)> warn;

  int RankOf(int server) const { return num_workers + server; }
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_GROUP_H_
