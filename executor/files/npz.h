// NumPy .npz archives: named arrays in a zip file, compatible with numpy.savez,
// numpy.savez_compressed and numpy.load.
#ifndef WEFT_EXECUTOR_FILES_NPZ_H_
#define WEFT_EXECUTOR_FILES_NPZ_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// An archive opened for reading. Arrays are read one at a time, on demand. Element types and array
// layouts are those of executor/files/npy.h; entries may be stored or deflated. Copies share the
// archive. Thread-safe; reads are serialized.
//
// Errors are one line that begins with the path and names the array. InvalidArgument if the file is
// bad: not a zip file, truncated, a wrong checksum or header, a shape that does not match the data.
// Memory is bounded by the data in the file. But deflated data may be a thousand times as large as
// the file, so check Type before you read an untrusted array.
class NpzFile {
 public:
  // Reads the directory of the archive. O(arrays).
  static absl::StatusOr<NpzFile> Open(const std::string& path);

  const std::string& path() const;
  // The names of the arrays, without ".npy", sorted.
  const std::vector<std::string>& names() const;
  // The type of an array, from its header alone. NotFound if there is no such array.
  absl::StatusOr<TensorType> Type(absl::string_view name) const;
  // NotFound if there is no such array.
  absl::StatusOr<Tensor> Read(absl::string_view name) const;

 private:
  struct Impl;
  explicit NpzFile(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Whether a tensor of a file is accepted. Its error becomes the error of the file, prefixed by the
// path.
using TensorCheck = std::function<absl::Status(const std::string& name, const TensorType& type)>;

// All arrays of an archive, by name. They pass `check`, if there is one, before memory is allocated
// for the first: a small archive may expand a thousandfold. ResourceExhausted if they exceed the
// available memory.
absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path,
                                                      const TensorCheck& check = nullptr);

// Writes an archive array by array, uncompressed. Equal arrays give equal bytes. Keeps no arrays in
// memory. Finish writes the file atomically: before it, `path` keeps its old content. Errors begin
// with the path.
class NpzWriter {
 public:
  static absl::StatusOr<NpzWriter> Create(const std::string& path);

  // Names must be distinct. InvalidArgument for an element type that NumPy does not have, an
  // unallocated tensor, and one that is_rows().
  absl::Status Add(const std::string& name, const Tensor& tensor);
  absl::Status Finish();

 private:
  struct Impl;
  explicit NpzWriter(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Writes the arrays in order of their names, with an NpzWriter.
absl::Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_NPZ_H_
