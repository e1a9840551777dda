// Paddle's .pdparams and .pdopt files: arrays by name, as Python pickles.
#ifndef WEFT_EXECUTOR_FILES_PICKLE_H_
#define WEFT_EXECUTOR_FILES_PICKLE_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/files/npz.h"
#include "ops/tensor.h"

namespace weft {

// A pickle is a program that builds Python objects. Of its instructions, and of the classes that it
// may name, the reader knows those that paddle.save, paddle.static.save and NumPy write (protocols
// 2 to 4): dictionaries, lists, tuples, numbers, texts and NumPy arrays. Anything else is an error,
// so that a file can do no more than give arrays. Nothing of a file is executed.

// Reads the arrays of a dictionary: name -> array, or name -> (name, array). Names of a layer's
// structure become those of the parameters, where the file has the table of both
// (StructuredToParameterName@@). Other entries, such as the state of a scheduler, are left. Arrays
// of uint16 are bf16: so Paddle writes it.
//
// All arrays pass `check`, if there is one, before memory is allocated for the first. Errors are
// one line that begins with the path. InvalidArgument if the file is bad, or has an instruction, a
// class or an element type that the reader does not know, or if its arrays have more than twice the
// bytes of the file. ResourceExhausted if the arrays exceed the available memory. O(bytes): at most
// three times the bytes of the file, and 64 MiB.
absl::StatusOr<std::map<std::string, Tensor>> ReadPickle(const std::string& path,
                                                         const TensorCheck& check = nullptr);

struct PickleFile {
  std::string path;
  const std::map<std::string, Tensor>* tensors;
};

// Writes a dictionary of arrays to each file with protocol 4, as paddle.static.save does; bf16 as
// uint16. Equal tensors give equal bytes. Files change together, or after an error none does, as
// far as AtomicFile::Replace can. InvalidArgument for an unallocated tensor, SelectedRows, and an
// element type that NumPy does not have.
absl::Status WritePickles(absl::Span<const PickleFile> files);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_PICKLE_H_
