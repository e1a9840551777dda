// NumPy .npz archives: named arrays in a zip file, as numpy.savez and numpy.savez_compressed write
// them and numpy.load reads them.
#ifndef WEFT_EXECUTOR_NPZ_H_
#define WEFT_EXECUTOR_NPZ_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// An archive that is open for reading; arrays are read one at a time, when asked for. Element types
// and array layouts are those of executor/npy.h; entries may be stored or deflated. Thread-safe;
// reads wait for each other.
//
// Errors are one line that begins with the path and names the array. They are InvalidArgument where
// the file is bad: no zip, truncated, a checksum or a header that is wrong, a shape that does not
// agree with the bytes that are there. Memory is bounded by the data really in the file; but
// deflated data may be a thousand times as large as the file, so look at Type before reading an
// array that may be anything.
class NpzFile {
 public:
  // Reads the directory of the archive. O(arrays).
  static absl::StatusOr<NpzFile> Open(const std::string& path);

  NpzFile(NpzFile&&) noexcept;
  NpzFile& operator=(NpzFile&&) noexcept;
  ~NpzFile();

  const std::string& path() const;
  // The arrays, without ".npy", sorted.
  const std::vector<std::string>& names() const;
  bool Contains(absl::string_view name) const;
  // What an array is, from its header alone. NotFound where there is no such array.
  absl::StatusOr<TensorType> Type(absl::string_view name) const;
  // NotFound where there is no such array.
  absl::StatusOr<Tensor> Read(absl::string_view name) const;

 private:
  struct Impl;
  explicit NpzFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All arrays of an archive, by name.
absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path);

// An archive that is being written, array by array, uncompressed. Equal arrays give equal bytes.
// Holds no arrays in memory. The file appears whole, at Finish, or not at all: what `path` named
// before stays until then. Errors begin with the path.
class NpzWriter {
 public:
  static absl::StatusOr<NpzWriter> Create(const std::string& path);

  NpzWriter(NpzWriter&&) noexcept;
  NpzWriter& operator=(NpzWriter&&) noexcept;
  ~NpzWriter();

  // A name is added once. InvalidArgument for an element type that NumPy does not have, a tensor
  // without memory, and one that is_rows().
  absl::Status Add(const std::string& name, const Tensor& tensor);
  absl::Status Finish();

 private:
  struct Impl;
  explicit NpzWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes the arrays in order of their names, with an NpzWriter.
absl::Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NPZ_H_
