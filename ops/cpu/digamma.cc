#include "ops/cpu/digamma.h"

#include <cmath>

namespace weft {

// Above 10 the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.12). The recurrence (6.3.5,
// 6.4.6) moves other arguments there, the reflection formula (6.3.7, 6.4.7) negative ones.
double Digamma(double x) {
  if (x <= 0) {
    if (x == std::floor(x)) return NAN;
    return Digamma(1 - x) - M_PI / std::tan(M_PI * x);
  }
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double r = 1 / (x * x);
  const double series =
      r *
      (1.0 / 12 -
       r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * 691.0 / 32760)))));
  return sum + std::log(x) - 0.5 / x - series;
}

double Trigamma(double x) {
  if (x <= 0) {
    if (x == std::floor(x)) return NAN;
    const double sine = std::sin(M_PI * x);
    return M_PI * M_PI / (sine * sine) - Trigamma(1 - x);
  }
  double sum = 0;
  for (; x < 10; ++x) sum += 1 / (x * x);
  const double r = 1 / (x * x);
  const double series =
      r * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30 - r * 5.0 / 66)))) / x;
  return sum + 1 / x + r / 2 + series;
}

}  // namespace weft
