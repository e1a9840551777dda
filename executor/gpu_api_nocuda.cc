#include "executor/gpu_api.h"

namespace weft {

GpuApi* CudaApi() { return nullptr; }

}  // namespace weft
