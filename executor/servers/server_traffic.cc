#include "executor/servers/server_traffic.h"

namespace weft {

int64_t BytesOf(const ServerMessage& message) {
  int64_t bytes = 0;
  for (const Tensor& tensor : message.tensors) {
    bytes += static_cast<int64_t>(tensor.bytes());
    if (tensor.is_rows()) bytes += static_cast<int64_t>(tensor.rows().size() * sizeof(int64_t));
  }
  return bytes;
}

}  // namespace weft
