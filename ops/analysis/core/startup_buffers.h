// Variables that share memory from the startup program on.
#ifndef WEFT_OPS_ANALYSIS_CORE_STARTUP_BUFFERS_H_
#define WEFT_OPS_ANALYSIS_CORE_STARTUP_BUFFERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// A persistable variable of which the startup program makes other persistable variables parts
// (coalesce_tensor), as Paddle's recurrent layers do with their weights: what is written to the one
// is written to the other.
struct StartupBuffer {
  struct Part {
    std::string name;
    int64_t begin = 0, count = 0;  // in elements
  };
  std::string name;
  int64_t size = 0;  // in elements
  std::vector<Part> parts;
};

// By name. A part that a later op moves to another buffer is a part of that one. Not those whose
// sizes are not known. O(arguments).
std::vector<StartupBuffer> FindStartupBuffers(const Program& startup);

// How a main program uses a buffer. It matters where the two do not share memory, as on two
// devices: then one of them gets the values of the other before a step and after it.
struct StartupBufferUse {
  // A coalesce_tensor of the program says what the buffer consists of.
  bool is_remade = false;
  // One moves parts elsewhere.
  bool moves_parts = false;
  // The program writes the buffer and no part. Otherwise the buffer gets the values of the parts.
  bool writes_buffer = false;
  // It reads the one that gets the values.
  bool reads_copy = false;
  // Why values before and after the step are not enough; empty: they are.
  std::string conflict;
};

// One for each buffer. O(arguments).
std::vector<StartupBufferUse> FindStartupBufferUses(const Program& main,
                                                    absl::Span<const StartupBuffer> buffers);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_STARTUP_BUFFERS_H_
