// What a rewrite that succeeds has to say to the user.
#ifndef WEFT_TRANSPILER_PIPELINE_MESSAGE_H_
#define WEFT_TRANSPILER_PIPELINE_MESSAGE_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/severity.h"

namespace weft {

struct Message {
  enum class Topic : uint8_t {
    kResult,        // what the rewrite did, and how ranks differ from one device
    kPaddleDefect,  // a known defect of Paddle in what the paddle dialect wrote
  };
  Severity severity = Severity::kNote;
  Topic topic = Topic::kResult;
  std::string rule;  // of the verifier ("W412"); empty: a pass says it
  std::string text;

  friend bool operator==(const Message& a, const Message& b) {
    return a.severity == b.severity && a.topic == b.topic && a.rule == b.rule && a.text == b.text;
  }
};

// "W412: op 6 (relu) reads ...", without the rule if a pass says it.
inline std::string TextWithRule(const Message& message) {
  return message.rule.empty() ? message.text : absl::StrCat(message.rule, ": ", message.text);
}

// "warning: W412: op 6 (relu) reads ...".
inline std::string ToString(const Message& message) {
  return absl::StrCat(SeverityName(message.severity), ": ", TextWithRule(message));
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_MESSAGE_H_
