#include "executor/jobs/job_messages.h"

#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr absl::string_view kHelloStart = "Weft job link";

absl::Status NoMessage(absl::string_view what) {
  return absl::InternalError(absl::StrCat("a message of the job link is malformed: ", what));
}

}  // namespace

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
  return EncodeTexts({absl::StrCat(error.raw_code()), error.message()});
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
  return EncodeTexts({kHelloStart, absl::StrCat(hello.version), hello.job,
                      absl::StrCat(hello.process), absl::StrCat(hello.num_processes),
                      absl::StrCat(hello.local_ranks), id.host, id.hostname, absl::StrCat(id.pid),
                      absl::StrCat(id.start_time)});
}

absl::StatusOr<JobHello> DecodeHello(absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> texts, DecodeTexts(bytes));
  JobHello hello;
  if (texts.size() < 2 || texts[0] != kHelloStart || !absl::SimpleAtoi(texts[1], &hello.version)) {
    return NoMessage("it is no greeting");
  }
  if (hello.version != JobHello::kVersion) return hello;
  if (texts.size() != 10 || !absl::SimpleAtoi(texts[3], &hello.process) ||
      !absl::SimpleAtoi(texts[4], &hello.num_processes) ||
      !absl::SimpleAtoi(texts[5], &hello.local_ranks) ||
      !absl::SimpleAtoi(texts[8], &hello.identity.pid) ||
      !absl::SimpleAtoi(texts[9], &hello.identity.start_time)) {
    return NoMessage("it is a greeting of other fields");
  }
  hello.job = std::move(texts[2]);
  hello.identity.host = std::move(texts[6]);
  hello.identity.hostname = std::move(texts[7]);
  return hello;
}

}  // namespace weft
