// The logarithmic derivative of the gamma function, and its derivative.
#ifndef WEFT_OPS_CPU_DIGAMMA_H_
#define WEFT_OPS_CPU_DIGAMMA_H_

namespace weft {

// NaN at 0 and the negative integers. Relative error below 1e-13 away from zeros.
double Digamma(double x);
double Trigamma(double x);

}  // namespace weft

#endif  // WEFT_OPS_CPU_DIGAMMA_H_
