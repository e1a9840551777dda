// The header of a NumPy .npy file: what its elements are and how they are shaped.
//
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
#ifndef WEFT_EXECUTOR_NPY_H_
#define WEFT_EXECUTOR_NPY_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"

namespace weft {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  Dims dims;
  size_t header_bytes = 0;  // what stands before the first element
  size_t data_bytes = 0;    // of all elements together
};

// No header that NumPy writes comes near this; a longer one is refused.
inline constexpr size_t kMaxNpyHeaderBytes = 65536;

// So many bytes say how long the header is; no file is shorter.
inline constexpr size_t kNpyPrefixBytes = 12;

// NpyHeader::header_bytes, from the first kNpyPrefixBytes of a file. InvalidArgument: no .npy, an
// unknown version, more than kMaxNpyHeaderBytes.
absl::StatusOr<size_t> NpyHeaderBytes(absl::string_view prefix);

// Reads the header at the start of `bytes`: the whole file, or at least its first
// NpyHeader::header_bytes. Takes the element types |b1 |i1 |u1 <i2 <i4 <i8 <f2 <f4 <f8 in C order
// (a vector may say Fortran order). InvalidArgument: no .npy, another element type or order, a
// shape whose size in bytes does not fit in 63 bits.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes);

// The header (version 1, or 2 where that is too small) of such an array; its length is a multiple
// of 64, as NumPy pads it. InvalidArgument for an element type that NumPy does not have (bf16,
// fp8).
absl::StatusOr<std::string> NpyHeaderFor(DType dtype, const Dims& dims);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NPY_H_
