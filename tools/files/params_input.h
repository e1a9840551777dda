// The parameters that a command reads, compared with its program.
#ifndef WEFT_TOOLS_FILES_PARAMS_INPUT_H_
#define WEFT_TOOLS_FILES_PARAMS_INPUT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft {

struct ParamsInput {
  // Of persistable variables of the program, or of whole tensors of which ranks have parts.
  std::map<std::string, Tensor> params;
  // Of other names, such as the optimizer state of training for a test program.
  std::map<std::string, Tensor> others;
  // Those of them that were in a .pdparams file.
  std::vector<std::string> others_of_pdparams;
};

// Splits arrays by whether they are those of persistable variables of the root block of a program.
// InvalidArgument, naming the first, if none is.
absl::StatusOr<ParamsInput> SplitParams(std::map<std::string, Tensor> arrays,
                                        absl::Span<const Program* const> programs);

// Reads --params F [--params_names G] for the programs of a run: the main program, and that of
// parameter servers. A save_combine stream without names has their persistable variables, or their
// parameters, sorted by name, as Paddle writes them. A .pt2 file has those that its step begins
// with. Errors begin with the path: those of LoadParams, of SplitParams, and a type that does not
// fit the program (CheckParam).
absl::StatusOr<ParamsInput> ReadParams(const std::string& path, const std::string& names_path,
                                       absl::Span<const Program* const> programs);

// What a training step of PyTorch begins with, which was read from `path`. None of other programs.
absl::StatusOr<absl::optional<ParamsInput>> StartParamsOf(const std::string& path,
                                                          const Program& program);

// "3 of 12 arrays are no persistable variables of the program (a, b, c)", with at most three names.
// Empty if all are.
std::string OthersText(const ParamsInput& input);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_PARAMS_INPUT_H_
