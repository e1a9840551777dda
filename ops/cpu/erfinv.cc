#include "ops/cpu/erfinv.h"

#include <cmath>
#include <limits>

namespace weft {
namespace {

// A quotient of polynomials of degree 7, coefficients from the constant term on.
struct Quotient {
  double numerator[8], denominator[8];
};

// For |y| up to 0.85, in 0.180625 - y²/4.
constexpr Quotient kCentral = {
    {1.1975323115670912564578e0, 4.7072688112383978012285e1, 6.9706266534389598238465e2,
     4.8548868893843886794648e3, 1.6235862515167575384252e4, 2.3782041382114385731252e4,
     1.1819493347062294404278e4, 8.8709406962545514830200e2},
    {1.0000000000000000000e0, 4.2313330701600911252e1, 6.8718700749205790830e2,
     5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
     2.8729085735721942674e4, 5.2264952788528545610e3}};

// Beyond, with r = √(ln 2 - ln(1 - |y|)): up to r = 5 in r - 1.6, then in r - 5.
constexpr Quotient kMiddle = {
    {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1.4142135623730950488016887e0, 2.9036514445419946173133295e0, 2.3707661626024532365971225e0,
     9.7547832001787427186894837e-1, 2.0945065210512749128288442e-1, 2.1494160384252876777097297e-2,
     7.7441459065157709165577218e-4, 1.4859850019840355905497876e-9}};
constexpr Quotient kTail = {
    {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7},
    {1.414213562373095048801689e0, 8.482908416595164588112026e-1, 1.936480946950659106176712e-1,
     2.103693768272068968719679e-2, 1.112800997078859844711555e-3, 2.611088405080593625138020e-5,
     2.010321207683943062279931e-7, 2.891024605872965461538222e-15}};

template <typename T>
T Polynomial(const double (&coefficients)[8], T x) {
  T value = static_cast<T>(coefficients[7]);
  for (int i = 6; i >= 0; --i) value = value * x + static_cast<T>(coefficients[i]);
  return value;
}

}  // namespace

// If T is float, Paddle computes the same steps in double precision as this does.
template <typename T>
T Erfinv(T y) {
  if (!(y >= -1 && y <= 1)) return std::numeric_limits<T>::quiet_NaN();
  if (std::fabs(y) == 1) return std::copysign(std::numeric_limits<T>::infinity(), y);

  const T magnitude = std::fabs(y);
  if (magnitude <= 0.85) {
    const T r = static_cast<T>(0.180625 - 0.25 * y * y);
    return y * Polynomial(kCentral.numerator, r) / Polynomial(kCentral.denominator, r);
  }
  const T ln2 = static_cast<T>(6.931471805599453094172321214581e-1);
  T r = static_cast<T>(std::sqrt(ln2 - std::log(1.0 - magnitude)));
  const Quotient& quotient = r <= 5.0 ? kMiddle : kTail;
  r = static_cast<T>(r - (r <= 5.0 ? 1.6 : 5.0));
  const T value = Polynomial(quotient.numerator, r) / Polynomial(quotient.denominator, r);
  return std::copysign(value, y);
}

template float Erfinv<float>(float);
template double Erfinv<double>(double);

}  // namespace weft
