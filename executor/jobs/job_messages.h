// What the processes of a job send each other over a connection (executor/jobs/job_link.h).
#ifndef WEFT_EXECUTOR_JOBS_JOB_MESSAGES_H_
#define WEFT_EXECUTOR_JOBS_JOB_MESSAGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/jobs/process_state.h"

namespace weft {

enum class JobMessageType : uint32_t {
  kChallenge,     // first, from both ends: a nonce (executor/jobs/job_token.h)
  kProof,         // then, from both ends: that the sender knows the token of the job
  kHello,         // then, from both ends: a JobHello
  kWelcome,       // from process 0, when all have come: the JobHello of each, as texts
  kHeartbeat,     // from both ends
  kGather,        // to process 0: a text for a gather
  kGathered,      // from process 0: the texts of all, or none
  kGatherFailed,  // from process 0: a status
  kTopic,         // from a process to another, which process 0 relays: JobLink::Send
  kFailure,       // a failure. Process 0 tells the first to all.
  kBye,           // the sender ends without JobLink::Finish
};

// Precedes every message. Both ends have the same byte order, or the magic differs.
struct JobMessageHeader {
  static constexpr uint32_t kMagic = 0x54464557;  // "WEFT"
  uint32_t magic = kMagic;
  JobMessageType type = JobMessageType::kHeartbeat;
  int32_t from = 0;  // processes
  int32_t to = 0;
  int64_t number = 0;  // of the gather, or the topic
  uint64_t size = 0;   // of the body
};
static_assert(sizeof(JobMessageHeader) == 32, "the layout on the wire has no holes");

struct JobMessage {
  JobMessageHeader header;
  // Shared by the connections that send it; who receives it may take it.
  std::shared_ptr<std::string> body;
};

// The largest body of a message. Without limit are those that carry values, such as parameters:
// they come from processes of the job alone, and may take what memory this host has.
uint64_t MaxBodyBytes(JobMessageType type);

JobMessage MakeJobMessage(JobMessageType type, int from, int to, int64_t number, std::string body);

// Several texts as one.
std::string EncodeTexts(const std::vector<absl::string_view>& texts);
absl::StatusOr<std::vector<std::string>> DecodeTexts(absl::string_view bytes);

// Encodes an error.
std::string EncodeError(const absl::Status& error);
// Returns the error; another, if it is no encoded error.
absl::Status DecodeError(absl::string_view bytes);

// Who a process is, and what all processes of a job must agree on.
struct JobHello {
  static constexpr int kVersion = 3;
  int version = kVersion;  // of the messages
  std::string job;
  int process = 0;
  int num_processes = 1;
  int local_ranks = 1;
  int generation = 0;
  ProcessIdentity identity;
  std::map<std::string, std::string> facts;  // JobLinkOptions::facts
};

std::string EncodeHello(const JobHello& hello);
// Of another version, the result has nothing but the version.
absl::StatusOr<JobHello> DecodeHello(absl::string_view bytes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_MESSAGES_H_
