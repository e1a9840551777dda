// Tensors that hold several gradients, on their way through collectives.
#ifndef WEFT_PROTO_FORMATS_PIR_GRADIENT_BUFFERS_H_
#define WEFT_PROTO_FORMATS_PIR_GRADIENT_BUFFERS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "proto/formats/pir/document.h"

namespace weft::pir {

// A buffer is a 1.concat of gradients, or a 1.all_gather of one, until a 1.split takes it apart.
// The exporter writes both.
class GradientBuffers {
 public:
  explicit GradientBuffers(const Document& document) : document_(document) {}

  // Ops come in the order of the file. O(results).
  void Follow(uint32_t op);
  // What a value that a buffer was taken apart into has been before: of the same type. kNoValue:
  // it comes from no buffer.
  ValueIndex OriginOf(ValueIndex part) const;

 private:
  struct Buffer {
    ValueIndex of = kNoValue;  // the list, or the gradient
    bool is_gathered = false;
  };
  void Keep(ValueIndex from, ValueIndex to);
  void TakeApart(uint32_t op);

  const Document& document_;
  absl::flat_hash_map<ValueIndex, Buffer> buffers_;
  absl::flat_hash_map<ValueIndex, ValueIndex> origins_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_GRADIENT_BUFFERS_H_
