// Parameters and state in files: Paddle's save_combine stream, or .npz.
#ifndef WEFT_EXECUTOR_PARAMS_FILE_H_
#define WEFT_EXECUTOR_PARAMS_FILE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// A save_combine file is a row of tensors without names, each, little-endian:
//
//   u32 version = 0
//   u64 LoD levels, and for each of them u64 bytes, then so many bytes of offsets (u64 each)
//   u32 version = 0
//   i32 bytes of the description, then the description: a serialized pb::VarType::TensorDesc
//   the elements
//
// Paddle writes the variables in the order of the save_combine op's inputs, which is the sorted
// order of their names. Level-of-detail offsets are skipped in reading and never written.
//
// Errors are one line that begins with the path and names the variable where it can; they are
// InvalidArgument where the file is bad. Memory is bounded by the size of the file.

// The tensors of a save_combine file, under the given names, in order. InvalidArgument where the
// file holds more or fewer tensors than there are names (the message has both numbers), where a
// name is repeated, and where an entry is no dense tensor (SelectedRows are not supported).
absl::StatusOr<std::map<std::string, Tensor>> ReadSaveCombine(const std::string& path,
                                                              absl::Span<const std::string> names);

// Writes the tensors, which must be dense, in order of their names. The file appears whole or not
// at all.
absl::Status WriteSaveCombine(const std::string& path,
                              const std::map<std::string, Tensor>& tensors);

// The names in a text file: one a line, blank lines and spaces at the ends ignored, or a JSON list
// of strings.
absl::StatusOr<std::vector<std::string>> ReadNameList(const std::string& path);

// Whether a tensor of a file is wanted. Its error is that of the file, with the path before it.
using TensorCheck = std::function<absl::Status(const std::string& name, const TensorType& type)>;

// By extension: .npz, which holds its names (`names_path` must be empty), else save_combine, whose
// names come from `names_path`. All tensors pass `check`, if there is one, before memory is taken
// for the first: a small .npz may hold a thousand times its size.
absl::StatusOr<std::map<std::string, Tensor>> LoadParams(const std::string& path,
                                                         const std::string& names_path,
                                                         const TensorCheck& check = nullptr);
absl::Status SaveParams(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PARAMS_FILE_H_
