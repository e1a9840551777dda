#include "executor/gpu/gpu_api.h"

namespace weft {

GpuApi* CudaApi() { return nullptr; }

}  // namespace weft
