// What the processes of a run send to process 0 and back, as bytes (executor/jobs/job_link.h). The
// processes run the same binary: the format may change with every version.
#ifndef WEFT_EXECUTOR_RUN_RUN_MESSAGES_H_
#define WEFT_EXECUTOR_RUN_RUN_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/run/result_queue.h"
#include "executor/run/run_state.h"
#include "executor/servers/server_message.h"
#include "ops/tensor.h"

namespace weft {

// Tensors, of rows too, are copied to the host. Errors: those of a device.
absl::StatusOr<std::string> ResultMessage(const StepResult& result);
absl::StatusOr<std::string> StatesMessage(const std::vector<RankState>& states);
// One state: how many bytes WriteState writes.
absl::StatusOr<size_t> StateBytes(const RankState& state);
absl::Status WriteState(const RankState& state, char* to);
absl::StatusOr<std::string> TensorsMessage(const std::map<std::string, Tensor>& tensors);
// For rank `to`.
absl::StatusOr<std::string> ServerMessageBytes(const ServerMessage& message, int to);
std::string StatusMessage(const absl::Status& status);
std::string NumbersMessage(const std::vector<uint64_t>& numbers);

// The values of messages, in host memory, without StepResult::names. Internal for other bytes.
absl::StatusOr<StepResult> ParseResult(absl::string_view message);
absl::StatusOr<std::vector<RankState>> ParseStates(absl::string_view message);
absl::StatusOr<RankState> ParseState(absl::string_view bytes);
absl::StatusOr<std::map<std::string, Tensor>> ParseTensors(absl::string_view message);
absl::StatusOr<ServerMessage> ParseServerMessage(absl::string_view message, int* to);
absl::StatusOr<std::vector<uint64_t>> ParseNumbers(absl::string_view message);
// The status itself, or Internal for other bytes.
absl::Status ParseStatus(absl::string_view message);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_MESSAGES_H_
