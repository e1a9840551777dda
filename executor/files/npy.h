// The header of a NumPy .npy file: element type and shape.
//
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
#ifndef WEFT_EXECUTOR_FILES_NPY_H_
#define WEFT_EXECUTOR_FILES_NPY_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"

namespace weft {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  Dims dims;
  bool is_fortran_order = false;  // of elements: the first index is the fastest
  size_t header_bytes = 0;        // bytes before the first element
  size_t data_bytes = 0;          // bytes of all elements
};

// NumPy writes no header near this size; larger ones are refused.
inline constexpr size_t kMaxNpyHeaderBytes = 65536;

// Bytes that are enough to know the size of the header; no file is smaller.
inline constexpr size_t kNpyPrefixBytes = 12;

// Returns NpyHeader::header_bytes, from the first kNpyPrefixBytes of a file. InvalidArgument: not
// an .npy file, an unknown version, more than kMaxNpyHeaderBytes.
absl::StatusOr<size_t> NpyHeaderBytes(absl::string_view prefix);

// Bytes of the elements of an array of these (known) dimensions. InvalidArgument beyond 63 bits,
// also of the dimensions that are not 0.
absl::StatusOr<size_t> ArrayBytes(DType dtype, const Dims& dims);

// Parses the header at the start of `bytes`: the whole file, or at least its first
// NpyHeader::header_bytes. Supports the element types |b1 |i1 |u1 <i2 <i4 <i8 <f2 <f4 <f8.
// InvalidArgument: not an .npy file, another element type, a shape whose size in bytes exceeds 63
// bits.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes);

// Copies an array in Fortran order, of elements of so many bytes, into row-major order. O(bytes).
void CopyFromFortranOrder(const char* from, const Dims& dims, size_t element_bytes, char* to);

// Returns the header (version 1, or 2 if it does not fit) of such an array. Its length is a
// multiple of 64, as NumPy pads it. InvalidArgument for element types that NumPy does not have
// (bf16, fp8).
absl::StatusOr<std::string> NpyHeaderFor(DType dtype, const Dims& dims);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_NPY_H_
