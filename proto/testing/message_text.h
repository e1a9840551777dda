// Program text of messages, for tests: they need not be well-formed programs.
#ifndef WEFT_PROTO_TESTING_MESSAGE_TEXT_H_
#define WEFT_PROTO_TESTING_MESSAGE_TEXT_H_

#include <string>

#include "proto/framework.pb.h"
#include "proto/text/program_text.h"

namespace weft::testing {

// What ProgramText returns for a program of this message. Parents of blocks may be missing or form
// a cycle.
std::string MessageText(const pb::ProgramDesc& desc, const PrintOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_MESSAGE_TEXT_H_
