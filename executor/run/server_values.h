// What comes from parameter servers after a run, by name.
#ifndef WEFT_EXECUTOR_RUN_SERVER_VALUES_H_
#define WEFT_EXECUTOR_RUN_SERVER_VALUES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "executor/servers/server_traffic.h"
#include "ops/tensor.h"

namespace weft {

// Of the part of a variable that a server has. No variable has such a name.
std::string NameOfPart(int server, absl::string_view variable);

// Brings what a server keeps to process 0, among the values of servers.
void AddMemory(int index, const ServerMemory& memory, std::map<std::string, Tensor>* values);
// Takes it out of them: by server.
std::vector<ServerMemory> TakeMemory(int num_servers, std::map<std::string, Tensor>* values);

// Puts together the rows that servers hold: their variables become whole.
absl::Status JoinParts(int num_servers, std::map<std::string, Tensor>* values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_SERVER_VALUES_H_
