// The inverse of the error function.
#ifndef WEFT_OPS_CPU_ERFINV_H_
#define WEFT_OPS_CPU_ERFINV_H_

namespace weft {

// The x with erf(x) = y, to about the precision of T (float or double); ±infinity for ±1, NaN
// outside of [-1, 1]. Wichura, "Algorithm AS 241: the percentage points of the normal distribution"
// (1988), PPND16, scaled by √2. Paddle's truncated normal distribution uses this approximation. It
// is evaluated in T as there, so that draws agree bit by bit.
template <typename T>
T Erfinv(T y);

extern template float Erfinv<float>(float);
extern template double Erfinv<double>(double);

}  // namespace weft

#endif  // WEFT_OPS_CPU_ERFINV_H_
