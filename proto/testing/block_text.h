// Small programs for tests.
#ifndef WEFT_PROTO_TESTING_BLOCK_TEXT_H_
#define WEFT_PROTO_TESTING_BLOCK_TEXT_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "proto/text/program_text.h"

namespace weft::testing {

// Program text of a program whose root block has these lines, from the third line of the text on,
// and of the blocks after it.
inline std::string BlockText(absl::string_view lines, absl::string_view more_blocks = "") {
  return absl::StrCat("program {\n  block 0 parent=-1 {\n", lines,
                      absl::EndsWith(lines, "\n") ? "" : "\n", "  }\n", more_blocks, "}\n");
}

// That program. CHECK-fails if the text is none.
inline Program BlockProgram(absl::string_view lines, absl::string_view more_blocks = "") {
  return *ParseProgramText(BlockText(lines, more_blocks));
}

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_BLOCK_TEXT_H_
