// The flags of weft eval.
#ifndef WEFT_TOOLS_CMD_WEFT_EVAL_FLAGS_H_
#define WEFT_TOOLS_CMD_WEFT_EVAL_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "tools/cmd/test_program.h"

namespace weft {

struct EvalFlags : TestFlags {
  std::string params, params_names, checkpoint;
  std::string metrics, tensorboard, fetch_npz;
  std::string format = "text";
};

void AddEvalFlags(CLI::App& app, EvalFlags& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_EVAL_FLAGS_H_
