// Marks functions that CUDA kernels call as well as the host.
#ifndef WEFT_OPS_HOST_DEVICE_H_
#define WEFT_OPS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define WEFT_HOST_DEVICE __host__ __device__
#else
#define WEFT_HOST_DEVICE
#endif

#endif  // WEFT_OPS_HOST_DEVICE_H_
