// A main program and its startup program.
#ifndef WEFT_PROTO_PROGRAM_PAIR_H_
#define WEFT_PROTO_PROGRAM_PAIR_H_

#include "proto/program.h"

namespace weft {

// For reading.
struct ConstProgramPair {
  const Program* main = nullptr;
  // Null if there is none: then rings count as set up, and persistable variables as replicated.
  const Program* startup = nullptr;
};

// For rewriting both.
struct ProgramPair {
  Program* main = nullptr;
  Program* startup = nullptr;  // may be null, as above

  operator ConstProgramPair() const { return {main, startup}; }
};

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_PAIR_H_
