// Files of parameters and state: Paddle's save_combine stream, .pdparams and .pdopt, .npz, or
// .safetensors.
#ifndef WEFT_EXECUTOR_FILES_PARAMS_FILE_H_
#define WEFT_EXECUTOR_FILES_PARAMS_FILE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/files/npz.h"
#include "ops/tensor.h"

namespace weft {

// A save_combine file is a sequence of unnamed tensors, each, little-endian:
//
//   u32 version = 0
//   u64 LoD levels, and for each of them u64 size, then that many bytes of offsets (u64 each)
//   u32 version = 0
//   i32 size of the description, then the description: a serialized pb::VarType::TensorDesc
//   the elements
//
// Paddle writes the variables in the order of the save_combine op's inputs, which is the sorted
// order of their names. Level-of-detail offsets are skipped on reading and never written.
//
// Errors are one line that begins with the path and, if possible, names the variable.
// InvalidArgument if the file is bad. Memory is bounded by the size of the file.

// Reads the tensors of a save_combine file, under the given names, in order. InvalidArgument if the
// number of tensors differs from the number of names (the message has both numbers), if a name is
// repeated, or if an entry is not a dense tensor (SelectedRows are not supported). All tensors pass
// `check`, if there is one, before memory is allocated for the first.
absl::StatusOr<std::map<std::string, Tensor>> ReadSaveCombine(const std::string& path,
                                                              absl::Span<const std::string> names,
                                                              const TensorCheck& check = nullptr);

// Reads names from a text file: one per line (blank lines and surrounding spaces are ignored), or a
// JSON list of strings.
absl::StatusOr<std::vector<std::string>> ReadNameList(const std::string& path);

// Whether the path has the names of its tensors: as a folder, or by its format, .npz, .safetensors,
// .pdparams or .pdopt. The first bytes of a file tell the format, or else its extension.
bool HasNames(absl::string_view path);

// Loads by format: one that has the names (`names_path` must be empty), else save_combine, whose
// names come from `names_path`. A folder has one save_combine file for each variable, of its name,
// as Paddle's save_vars writes them without a filename; a file __model__, the program, and hidden
// files do not count. A .pdparams file has the parameters, and a .pdopt file of the same
// name beside it, which is read too, the other variables, as paddle.static.save writes them.
// InvalidArgument for a checkpoint (executor/files/checkpoint.h). `of_pdopt`, if not null, gets the
// names from the .pdopt file.
absl::StatusOr<std::map<std::string, Tensor>> LoadParams(const std::string& path,
                                                         const std::string& names_path,
                                                         const TensorCheck& check = nullptr,
                                                         std::set<std::string>* of_pdopt = nullptr);
// Writes dense tensors atomically; the extension tells the format. InvalidArgument for an element
// type that the format does not have: .npz has no bf16 and no fp8, .safetensors no complex numbers.
absl::Status SaveParams(const std::string& path, const std::map<std::string, Tensor>& tensors);

// The .pdopt file beside a .pdparams file; empty for another path.
std::string PdoptBeside(const std::string& path);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_PARAMS_FILE_H_
