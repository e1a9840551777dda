// safetensors files: named tensors, compatible with Hugging Face's library. Unlike .npz, they hold
// bf16.
#ifndef WEFT_EXECUTOR_FILES_SAFETENSORS_H_
#define WEFT_EXECUTOR_FILES_SAFETENSORS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/files/npz.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// A file is
//
//   u64 little-endian: size of the header
//   the header, JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...,
//                      "__metadata__": {"key": "text", ...}}, and spaces
//   the elements, row-major; offsets count from here
//
// Element types are BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2; not the complex ones,
// and not U16 U32 U64, which Weft does not have.
//
// Errors are one line that begins with the path and, if possible, names the tensor. InvalidArgument
// if the file is bad: truncated, no JSON of that form, a name twice, an unknown element type, data
// that overlap, leave gaps or end beyond the file, or whose size is not that of the shape, a
// boolean that is neither 0 nor 1.

using Metadata = std::map<std::string, std::string>;

// A file opened for reading. Copies share it. Thread-safe.
class SafetensorsFile {
 public:
  // Maps the file, and reads and checks the header. O(tensors log tensors).
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const;
  const Metadata& metadata() const;
  // The types of all tensors, by name.
  const std::map<std::string, TensorType>& types() const;
  // A copy of a tensor. NotFound if there is none of that name.
  absl::StatusOr<Tensor> Read(const std::string& name) const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// All tensors, by name. They pass `check`, if there is one, before memory is allocated for the
// first. ResourceExhausted if they exceed the available memory.
absl::StatusOr<std::map<std::string, Tensor>> ReadSafetensors(const std::string& path,
                                                              const TensorCheck& check = nullptr);

// Writes dense tensors in host memory, atomically. Elements follow by decreasing size of the
// element type, then by name, so that all are aligned. Equal tensors and metadata give equal bytes.
// InvalidArgument for an unallocated tensor, SelectedRows, a complex tensor, a name that is not
// UTF-8, and "__metadata__".
absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                              const Metadata& metadata = {});

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_SAFETENSORS_H_
