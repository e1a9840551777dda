// YOLOv3: every cell of a grid predicts a box, an objectness and classes for each of some anchors
// (widths and heights in pixels of the image; a cell covers downsample_ratio pixels). For a cell at
// (column, row), with s = scale_x_y and X's channels of an anchor in the order x, y, w, h, object,
// classes:
//   box center = (cell + s σ(x) - (s - 1) / 2) / grid,  box size = anchor exp(w) / image
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr double kSmallestBox = 1e-6;  // smaller boxes count as none
// Marks in ObjectnessMask: the score of the box that a cell must find, 0 if there is none, and this
// value if the cell predicts a box well enough without being responsible for it.
constexpr double kIgnored = -1;

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// -label log σ(x) - (1 - label) log(1 - σ(x))
template <typename T>
T SigmoidCrossEntropy(T x, T label) {
  return std::max(x, T(0)) - x * label + std::log1p(std::exp(-std::fabs(x)));
}

// In fractions of the image, from its center.
template <typename T>
struct Box {
  T x, y, w, h;

  bool IsThere() const { return !(w < kSmallestBox) && !(h < kSmallestBox); }
};

template <typename T>
T IntersectionOverUnion(const Box<T>& a, const Box<T>& b) {
  const auto overlap = [](T x, T w, T other_x, T other_w) {
    return std::min(x + w / 2, other_x + other_w / 2) - std::max(x - w / 2, other_x - other_w / 2);
  };
  const T w = overlap(a.x, a.w, b.x, b.w), h = overlap(a.y, a.h, b.y, b.h);
  const T both = w < 0 || h < 0 ? T(0) : w * h;
  return both / (a.w * a.h + b.w * b.h - both);
}

// The attributes, and the boxes, classes and scores (1 without GTScore) to be found.
struct Yolo {
  In x, boxes, labels, scores;
  std::vector<int64_t> anchors;  // width, height, width, ...
  std::vector<int64_t> mask;     // those for which X has predictions
  int64_t classes, downsample;
  double ignore_thresh, scale;
  double positive = 1, negative = 0;  // labels of classes
  bool is_paddles;

  Yolo(const KernelSpec& spec, OpKernel* op)
      : x(op->in("X")),
        boxes(op->in("GTBox")),
        labels(op->in("GTLabel")),
        scores(op->in("GTScore")),
        anchors(spec.attrs.Ints("anchors")),
        mask(spec.attrs.Ints("anchor_mask")),
        classes(spec.attrs.Int("class_num")),
        downsample(spec.attrs.Int("downsample_ratio")),
        ignore_thresh(spec.attrs.Float("ignore_thresh")),
        scale(spec.attrs.Float("scale_x_y")),
        is_paddles(spec.paddle_cpu_quirks) {
    if (!spec.attrs.Bool("use_label_smooth")) return;
    negative = std::min(1.0 / static_cast<double>(classes), 1.0 / 40);
    positive = 1 - negative;
  }

  int64_t Label(const KernelContext& ctx, int64_t i) const { return labels.data<int32_t>(ctx)[i]; }
  template <typename T>
  T Score(const KernelContext& ctx, int64_t i) const {
    return scores ? scores.data<T>(ctx)[i] : T(1);
  }

  // The boxes of all images. InvalidArgument unless their centers are in the image, and their
  // labels are classes.
  template <typename T>
  absl::StatusOr<std::vector<Box<T>>> ReadBoxes(const KernelContext& ctx) const {
    std::vector<Box<T>> result;
    for (int64_t i = 0; i < boxes(ctx).size() / 4; ++i) {
      const T* box = boxes.data<T>(ctx) + 4 * i;
      const Box<T>& b = result.emplace_back(Box<T>{box[0], box[1], box[2], box[3]});
      if (!b.IsThere()) continue;
      if (!(b.x >= 0 && b.x < 1 && b.y >= 0 && b.y < 1)) {
        return absl::InvalidArgumentError(absl::StrCat("input GTBox: the center of box ", i, ", (",
                                                       b.x, ", ", b.y, "), is not in [0, 1)"));
      }
      if (Label(ctx, i) >= 0 && Label(ctx, i) < classes) continue;
      return absl::InvalidArgumentError(absl::StrCat("input GTLabel: ", Label(ctx, i), " of box ",
                                                     i, " is not in [0, ", classes, ")"));
    }
    return result;
  }
};

// An image's predictions.
template <typename T>
class Grid {
 public:
  Grid(const Yolo& yolo, const Tensor& x) : yolo_(yolo), height_(x.dim(2)), width_(x.dim(3)) {}

  int64_t cells() const { return height_ * width_; }
  // The index in X of channel `entry` of an anchor (an index into the mask).
  int64_t At(int64_t image, int64_t anchor, int64_t cell, int64_t entry) const {
    const int64_t masks = yolo_.mask.size();
    return ((image * masks + anchor) * (5 + yolo_.classes) + entry) * cells() + cell;
  }

  // A box at the origin, of the size of an anchor.
  Box<T> Anchor(int64_t anchor) const {
    return {0, 0, static_cast<T>(yolo_.anchors[2 * anchor]) / ImageSize(width_),
            static_cast<T>(yolo_.anchors[2 * anchor + 1]) / ImageSize(height_)};
  }

  Box<T> Predicted(const T* x, int64_t image, int64_t anchor, int64_t cell) const {
    const T scale = static_cast<T>(yolo_.scale), bias = (1 - scale) / 2;
    const Box<T> size = Anchor(yolo_.mask[anchor]);
    const auto entry = [&](int64_t i) { return x[At(image, anchor, cell, i)]; };
    const int64_t column = cell % width_, row = cell / width_;
    return {(column + Sigmoid(entry(0)) * scale + bias) / width_,
            (row + Sigmoid(entry(1)) * scale + bias) / height_, std::exp(entry(2)) * size.w,
            std::exp(entry(3)) * size.h};
  }

  int64_t CellOf(const Box<T>& box) const {
    return static_cast<int64_t>(box.y * height_) * width_ + static_cast<int64_t>(box.x * width_);
  }

  // The targets of x, y, w and h of the cell: σ of the first two.
  Box<T> Target(const Box<T>& box, int64_t cell, int64_t anchor) const {
    const Box<T> size = Anchor(yolo_.mask[anchor]);
    const int64_t column = cell % width_, row = cell / width_;
    return {box.x * width_ - column, box.y * height_ - row, std::log(box.w / size.w),
            std::log(box.h / size.h)};
  }

  // The index into the mask of the anchor that is most like the box; -1 if the mask does not have
  // it.
  int64_t BestAnchor(const Box<T>& box) const {
    int64_t best = 0;
    T best_overlap = 0;
    for (size_t a = 0; a < yolo_.anchors.size() / 2; ++a) {
      const T overlap = IntersectionOverUnion(Anchor(a), Box<T>{0, 0, box.w, box.h});
      if (!(overlap > best_overlap)) continue;
      best = a;
      best_overlap = overlap;
    }
    const auto it = std::find(yolo_.mask.begin(), yolo_.mask.end(), best);
    return it == yolo_.mask.end() ? -1 : it - yolo_.mask.begin();
  }

 private:
  T ImageSize(int64_t grid) const { return static_cast<T>(grid * yolo_.downsample); }

  const Yolo& yolo_;
  int64_t height_, width_;
};

// The loss of an image: over the boxes, each in its cell and by the anchor that is most like it,
//   score (2 - w h) (cross entropies of x and y + |w - target| + |h - target|)
//   + score Σ cross entropy of the classes
// and over all cells and anchors the cross entropy of object: against 1 times ObjectnessMask if
// there is a box, against 0 if there is none, and nothing if a box is predicted with an overlap of
// more than ignore_thresh. GTMatchMask has the anchors of the boxes, -1 for none.
absl::StatusOr<Kernel> YoloLoss(OpKernel op) {
  const Yolo yolo(op.spec(), &op);
  const In x = yolo.x;
  const Out loss = op.out("Loss"), objects = op.out("ObjectnessMask"),
            match = op.out("GTMatchMask");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto boxes, yolo.ReadBoxes<T>(ctx));
    const Grid<T> grid(yolo, x(ctx));
    const int64_t images = x(ctx).dim(0), anchors = yolo.mask.size(), cells = grid.cells();
    const int64_t boxes_per_image = yolo.boxes(ctx).dim(1);
    match(ctx).Resize(DType::kInt32, {images, boxes_per_image});
    const T* xs = x.data<T>(ctx);
    T* marks = objects.data<T>(ctx);
    for (int64_t n = 0; n < images; ++n) {
      const int64_t first = n * boxes_per_image, end = first + boxes_per_image;
      for (int64_t i = 0; i < anchors * cells; ++i) {
        const Box<T> predicted = grid.Predicted(xs, n, i / cells, i % cells);
        T best = 0;
        for (int64_t t = first; t < end; ++t) {
          if (!boxes[t].IsThere()) continue;
          best = std::max(best, IntersectionOverUnion(predicted, boxes[t]));
        }
        marks[n * anchors * cells + i] = static_cast<T>(best > yolo.ignore_thresh ? kIgnored : 0);
      }
      double sum = 0;
      for (int64_t t = first; t < end; ++t) {
        const Box<T>& box = boxes[t];
        const int64_t anchor = box.IsThere() ? grid.BestAnchor(box) : -1;
        match.data<int32_t>(ctx)[t] = static_cast<int32_t>(anchor);
        if (anchor < 0) continue;
        const int64_t cell = grid.CellOf(box);
        const Box<T> target = grid.Target(box, cell, anchor);
        const auto entry = [&](int64_t i) { return xs[grid.At(n, anchor, cell, i)]; };
        const T score = yolo.Score<T>(ctx, t);
        sum += (2 - box.w * box.h) * score *
               (SigmoidCrossEntropy(entry(0), target.x) + SigmoidCrossEntropy(entry(1), target.y) +
                std::fabs(entry(2) - target.w) + std::fabs(entry(3) - target.h));
        for (int64_t c = 0; c < yolo.classes; ++c) {
          const double label = c == yolo.Label(ctx, t) ? yolo.positive : yolo.negative;
          sum += score * SigmoidCrossEntropy(entry(5 + c), static_cast<T>(label));
        }
        marks[(n * anchors + anchor) * cells + cell] = score;
      }
      for (int64_t i = 0; i < anchors * cells; ++i) {
        const T mark = marks[n * anchors * cells + i],
                object = xs[grid.At(n, i / cells, i % cells, 4)];
        if (mark > 1e-5) sum += mark * SigmoidCrossEntropy(object, T(1));
        if (mark <= 1e-5 && mark > -0.5) sum += SigmoidCrossEntropy(object, T(0));
      }
      loss.data<T>(ctx)[n] = static_cast<T>(sum);
    }
    return absl::OkStatus();
  });
}

// If several boxes share a cell and anchor, Paddle's gradient is that of the last of them.
absl::StatusOr<Kernel> YoloLossGrad(OpKernel op) {
  const Yolo yolo(op.spec(), &op);
  const In x = yolo.x, objects = op.in("ObjectnessMask"), match = op.in("GTMatchMask");
  const In dloss = op.in("Loss@GRAD");
  const Out dx = op.out("X@GRAD");
  op.Supports(Floats(x));
  for (const char* slot : {"GTBox@GRAD", "GTLabel@GRAD", "GTScore@GRAD"}) {
    if (op.out(slot)) return absl::UnimplementedError(absl::StrCat("output ", slot, ": no kernel"));
  }
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto boxes, yolo.ReadBoxes<T>(ctx));
    const Grid<T> grid(yolo, x(ctx));
    const int64_t images = x(ctx).dim(0), anchors = yolo.mask.size(), cells = grid.cells();
    const int64_t boxes_per_image = yolo.boxes(ctx).dim(1);
    WEFT_RETURN_IF_ERROR(CheckSize("GTMatchMask", match(ctx), boxes.size()));
    const T* xs = x.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    const auto add = [&](int64_t i, T d) { to[i] = yolo.is_paddles ? d : to[i] + d; };
    for (int64_t t = 0; t < match(ctx).size(); ++t) {
      const int64_t anchor = match.data<int32_t>(ctx)[t], n = t / boxes_per_image;
      if (anchor < 0 || !boxes[t].IsThere()) continue;
      if (anchor >= anchors) {
        return absl::InvalidArgumentError(
            absl::StrCat("input GTMatchMask: ", anchor, " is not in [-1, ", anchors, ")"));
      }
      const Box<T>& box = boxes[t];
      const int64_t cell = grid.CellOf(box);
      const Box<T> target = grid.Target(box, cell, anchor);
      const T d = dloss.data<T>(ctx)[n] * yolo.Score<T>(ctx, t), location = d * (2 - box.w * box.h);
      const auto at = [&](int64_t i) { return grid.At(n, anchor, cell, i); };
      add(at(0), location * (Sigmoid(xs[at(0)]) - target.x));
      add(at(1), location * (Sigmoid(xs[at(1)]) - target.y));
      add(at(2), xs[at(2)] > target.w ? location : -location);
      add(at(3), xs[at(3)] > target.h ? location : -location);
      for (int64_t c = 0; c < yolo.classes; ++c) {
        const double label = c == yolo.Label(ctx, t) ? yolo.positive : yolo.negative;
        add(at(5 + c), d * (Sigmoid(xs[at(5 + c)]) - static_cast<T>(label)));
      }
    }
    for (int64_t i = 0; i < images * anchors * cells; ++i) {
      const int64_t n = i / cells / anchors, at = grid.At(n, i / cells % anchors, i % cells, 4);
      const T mark = objects.data<T>(ctx)[i], d = dloss.data<T>(ctx)[n];
      if (mark > 1e-5) to[at] = d * mark * (Sigmoid(xs[at]) - 1);
      if (mark <= 1e-5 && mark > -0.5) to[at] = d * Sigmoid(xs[at]);
    }
    return absl::OkStatus();
  });
}

// Boxes, (left, top, right, bottom) in pixels of an image of ImgSize (height, width), and the
// Scores of their classes: confidence times σ. Both are 0 if the confidence, σ of object, is below
// conf_thresh. With iou_aware, leading channels predict the overlap, and the confidence is
// σ(object)^(1 - f) σ(overlap)^f, f being iou_aware_factor.
absl::StatusOr<Kernel> YoloBox(OpKernel op) {
  const In x = op.in("X"), sizes = op.in("ImgSize");
  const Out boxes = op.out("Boxes"), scores = op.out("Scores");
  const OpAttrs& a = op.attrs();
  return op.Make(
      Floats(x),
      [=, anchors = a.Ints("anchors"), classes = a.Int("class_num"),
       downsample = a.Int("downsample_ratio"), threshold = a.Float("conf_thresh"),
       clips = a.Bool("clip_bbox"), scale = a.Float("scale_x_y"), is_aware = a.Bool("iou_aware"),
       factor = a.Float("iou_aware_factor")](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const int64_t height = x(ctx).dim(2), width = x(ctx).dim(3), cells = height * width;
        const int64_t count = anchors.size() / 2, images = x(ctx).dim(0);
        std::fill_n(boxes.data<T>(ctx), boxes(ctx).size(), T(0));
        std::fill_n(scores.data<T>(ctx), scores(ctx).size(), T(0));
        for (int64_t i = 0; i < images * count * cells; ++i) {
          const int64_t n = i / cells / count, anchor = i / cells % count, cell = i % cells;
          const T* image = x.data<T>(ctx) + n * x(ctx).dim(1) * cells + cell;
          const T* from = image + ((is_aware ? count : 0) + anchor * (5 + classes)) * cells;
          T confidence = Sigmoid(from[4 * cells]);
          if (is_aware) {
            confidence = std::pow(confidence, static_cast<T>(1 - factor)) *
                         std::pow(Sigmoid(image[anchor * cells]), static_cast<T>(factor));
          }
          if (confidence < threshold) continue;
          const T image_height = sizes.data<int32_t>(ctx)[2 * n];
          const T image_width = sizes.data<int32_t>(ctx)[2 * n + 1];
          const T s = static_cast<T>(scale), shift = (1 - s) / 2;
          const int64_t column = cell % width, row = cell / width;
          const T cx = (column + Sigmoid(from[0]) * s + shift) * image_width / width;
          const T cy = (row + Sigmoid(from[cells]) * s + shift) * image_height / height;
          const T w =
              std::exp(from[2 * cells]) * anchors[2 * anchor] * image_width / (downsample * width);
          const T h = std::exp(from[3 * cells]) * anchors[2 * anchor + 1] * image_height /
                      (downsample * height);
          T* box = boxes.data<T>(ctx) + 4 * i;
          box[0] = cx - w / 2;
          box[1] = cy - h / 2;
          box[2] = cx + w / 2;
          box[3] = cy + h / 2;
          if (clips) {
            box[0] = std::max(box[0], T(0));
            box[1] = std::max(box[1], T(0));
            box[2] = std::min(box[2], image_width - 1);
            box[3] = std::min(box[3], image_height - 1);
          }
          for (int64_t c = 0; c < classes; ++c) {
            scores.data<T>(ctx)[i * classes + c] = confidence * Sigmoid(from[(5 + c) * cells]);
          }
        }
      });
}

}  // namespace

void AddYoloKernels(KernelTable* table) {
  table->Add("yolov3_loss", YoloLoss);
  table->Add("yolov3_loss_grad", YoloLossGrad);
  table->Add("yolo_box", YoloBox);
}

}  // namespace weft
