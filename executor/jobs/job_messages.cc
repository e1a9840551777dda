#include "executor/jobs/job_messages.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/jobs/job_token.h"

namespace weft {
namespace {

constexpr absl::string_view kHelloStart = "Weft job link";

absl::Status NoMessage(absl::string_view what) {
  return absl::InternalError(absl::StrCat("a message of the job link is malformed: ", what));
}

}  // namespace

uint64_t MaxBodyBytes(JobMessageType type) {
  constexpr uint64_t kMaxTextBytes = uint64_t{1} << 16;
  switch (type) {
    case JobMessageType::kChallenge:
      return kJobNonceBytes;
    case JobMessageType::kProof:
      return kJobProofBytes;
    case JobMessageType::kHello:
    case JobMessageType::kFailure:
    case JobMessageType::kGatherFailed:
      return kMaxTextBytes;
    case JobMessageType::kHeartbeat:
    case JobMessageType::kBye:
      return 0;
    case JobMessageType::kWelcome:  // a greeting of each process
    case JobMessageType::kGather:
    case JobMessageType::kGathered:
    case JobMessageType::kTopic:
      return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
  return 0;
}

JobMessage MakeJobMessage(JobMessageType type, int from, int to, int64_t number, std::string body) {
  JobMessage message;
  message.header.type = type;
  message.header.from = from;
  message.header.to = to;
  message.header.number = number;
  message.header.size = body.size();
  message.body = std::make_shared<std::string>(std::move(body));
  return message;
}

std::string EncodeTexts(const std::vector<absl::string_view>& texts) {
  size_t size = 0;
  for (absl::string_view text : texts) size += sizeof(uint64_t) + text.size();
  std::string bytes;
  bytes.reserve(size);
  for (absl::string_view text : texts) {
    const uint64_t length = text.size();
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(text.data(), text.size());
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> DecodeTexts(absl::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    uint64_t length = 0;
    if (bytes.size() < sizeof(length)) return NoMessage("it ends within a length");
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    if (length > bytes.size()) return NoMessage("it ends within a text");
    texts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return texts;
}

std::string EncodeError(const absl::Status& error) {
  // Of a message that is longer, the beginning says what has failed.
  constexpr size_t kMaxMessage = 60000;
  return EncodeTexts({absl::StrCat(error.raw_code()), error.message().substr(0, kMaxMessage)});
}

absl::Status DecodeError(absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, DecodeTexts(bytes));
  int code = 0;
  if (texts.size() != 2 || !absl::SimpleAtoi(texts[0], &code) || code == 0) {
    return NoMessage("it has no error");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), texts[1]);
}

std::string EncodeHello(const JobHello& hello) {
  const ProcessIdentity& id = hello.identity;
  std::vector<std::string> texts = {std::string(kHelloStart),
                                    absl::StrCat(hello.version),
                                    hello.job,
                                    absl::StrCat(hello.process),
                                    absl::StrCat(hello.num_processes),
                                    absl::StrCat(hello.local_ranks),
                                    absl::StrCat(hello.generation),
                                    id.host,
                                    id.hostname,
                                    absl::StrCat(id.pid),
                                    absl::StrCat(id.start_time),
                                    absl::StrCat(hello.facts.size())};
  for (const auto& [name, value] : hello.facts) {
    texts.push_back(name);
    texts.push_back(value);
  }
  return EncodeTexts(std::vector<absl::string_view>(texts.begin(), texts.end()));
}

absl::StatusOr<JobHello> DecodeHello(absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> texts, DecodeTexts(bytes));
  JobHello hello;
  if (texts.size() < 2 || texts[0] != kHelloStart || !absl::SimpleAtoi(texts[1], &hello.version)) {
    return NoMessage("it is no greeting");
  }
  if (hello.version != JobHello::kVersion) return hello;
  constexpr size_t kFacts = 12;  // where they begin
  size_t num_facts = 0;
  if (texts.size() < kFacts || !absl::SimpleAtoi(texts[kFacts - 1], &num_facts) ||
      num_facts != (texts.size() - kFacts) / 2 || (texts.size() - kFacts) % 2 != 0 ||
      !absl::SimpleAtoi(texts[3], &hello.process) ||
      !absl::SimpleAtoi(texts[4], &hello.num_processes) ||
      !absl::SimpleAtoi(texts[5], &hello.local_ranks) ||
      !absl::SimpleAtoi(texts[6], &hello.generation) ||
      !absl::SimpleAtoi(texts[9], &hello.identity.pid) ||
      !absl::SimpleAtoi(texts[10], &hello.identity.start_time)) {
    return NoMessage("it is a greeting of other fields");
  }
  hello.job = std::move(texts[2]);
  hello.identity.host = std::move(texts[7]);
  hello.identity.hostname = std::move(texts[8]);
  for (size_t i = kFacts; i < texts.size(); i += 2) {
    hello.facts[std::move(texts[i])] = std::move(texts[i + 1]);
  }
  return hello;
}

}  // namespace weft
