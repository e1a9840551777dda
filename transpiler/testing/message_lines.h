// Messages of a rewrite as lines, for comparisons in tests.
#ifndef WEFT_TRANSPILER_TESTING_MESSAGE_LINES_H_
#define WEFT_TRANSPILER_TESTING_MESSAGE_LINES_H_

#include <string>
#include <vector>

#include "transpiler/pipeline/message.h"

namespace weft::testing {

// "warning: W412: op 6 (relu) reads ...".
inline std::vector<std::string> LinesAbout(Message::Topic topic,
                                           const std::vector<Message>& messages) {
  std::vector<std::string> lines;
  for (const Message& message : messages) {
    if (message.topic == topic) lines.push_back(ToString(message));
  }
  return lines;
}

inline std::vector<std::string> ResultLines(const std::vector<Message>& messages) {
  return LinesAbout(Message::Topic::kResult, messages);
}
inline std::vector<std::string> DefectLines(const std::vector<Message>& messages) {
  return LinesAbout(Message::Topic::kPaddleDefect, messages);
}

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_MESSAGE_LINES_H_
