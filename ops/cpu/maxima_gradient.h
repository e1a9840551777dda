// The gradient of the maxima over windows of images.
#ifndef WEFT_OPS_CPU_MAXIMA_GRADIENT_H_
#define WEFT_OPS_CPU_MAXIMA_GRADIENT_H_

#include <cstdint>
#include <vector>

namespace weft {

// Windows over an image of which no two share an element. An element has `channels` neighbouring
// numbers, and each channel a maximum of its own. One pass over the images finds the maxima and
// writes the gradient: several times as fast as oneDNN, which makes two.
class DisjointWindows {
 public:
  DisjointWindows() = default;
  // Without windows.
  DisjointWindows(int64_t elements, int64_t channels)
      : channels_(channels), is_in_window_(elements, false) {}

  // Numbers of an image.
  int64_t image_size() const { return static_cast<int64_t>(is_in_window_.size()) * channels_; }

  // Elements come in order after their window. The first position of a window that `is_cut` is
  // beyond the edge of the image.
  void AddWindow(bool is_cut);
  // False if the element is in a window already.
  bool AddElement(int64_t element);

  // to = the gradient: that of an element of `douts` goes to the first largest number under its
  // window or, if no number is larger than the lowest one, to the first position, as in oneDNN.
  // Images are divided among the threads of the rank.
  void Gradient(int64_t images, const float* values, const float* douts, float* to) const;

 private:
  struct Element {
    int64_t offset;
    int32_t place;  // in the window
  };

  void GradientOfImage(const float* values, const float* douts, float* to) const;
  template <int lanes>
  static void GradientOfWindow(const Element* begin, const Element* end, const float* values,
                               const float* dout, float* to);

  int64_t channels_ = 0;
  std::vector<bool> is_in_window_;
  std::vector<Element> elements_;  // window by window
  std::vector<int64_t> ends_;      // of the windows
  int32_t next_place_ = 0;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_MAXIMA_GRADIENT_H_
