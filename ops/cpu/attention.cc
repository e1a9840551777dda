// Attention (ops/schema/attention_ops.h), block by block: the scores of a block stay in the
// second-level cache, and the gradient computes them again (FlashAttention, Dao et al. 2022). A
// block has all columns of its rows, so that the softmax of a row is computed at once.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/dropout_attrs.h"
#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/random_engine.h"
#include "ops/cpu/softmax_row.h"
#include "ops/formulas/dropout.h"
#include "ops/op_kernel.h"
#include "ops/schema/attention_ops.h"
#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Of a block: 128 KiB, of which the gradient has two.
constexpr int64_t kMaxScores = int64_t{1} << 15;
// Rows of a block are a multiple of what oneDNN computes at once.
constexpr int64_t kRowStep = 16;

struct Sizes {
  int64_t matrices = 0, rows = 0, columns = 0;  // of the scores
  int64_t depth = 0, value_depth = 0;           // columns of Q and K, of V
  double alpha = 1;

  Sizes(const Dims& q, const Dims& k, const Dims& v, double alpha)
      : matrices(NumElements(absl::MakeConstSpan(q).first(q.size() - 2))),
        rows(q[q.size() - 2]),
        columns(k[k.size() - 2]),
        depth(q.back()),
        value_depth(v.back()),
        alpha(alpha) {}

  int64_t NumScores() const { return matrices * rows * columns; }
};

// Some matrices of the scores, all their rows; or some rows of one matrix.
struct BlockSize {
  int64_t matrices = 1, rows = 1;

  explicit BlockSize(const Sizes& s) {
    const int64_t size = s.rows * s.columns;
    if (size <= kMaxScores) {
      matrices = std::min(kMaxScores / size, s.matrices);
      rows = s.rows;
    } else {
      const int64_t fitting = kMaxScores / s.columns / kRowStep * kRowStep;
      rows = std::min(s.rows, std::max(kRowStep, fitting));
    }
  }
  BlockSize(int64_t matrices, int64_t rows) : matrices(matrices), rows(rows) {}
};

// Computes on one thread while it exists, also in what oneDNN makes and runs.
class OneThread {
 public:
  OneThread() : before_(KernelThreads()) { SetKernelThreads(1); }
  ~OneThread() { SetKernelThreads(before_); }

 private:
  const int before_;
};

// A buffer of the calling thread, which all its ops share.
float* ThreadBuffer(size_t size) {
  static thread_local std::vector<float> buffer;
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

// Mask as an addend of the scores.
class Addend {
 public:
  Addend() = default;
  Addend(const Sizes& s, Dims scores, Dims mask) : is_there_(true) {
    mask.insert(mask.begin(), scores.size() - mask.size(), 1);
    column_stride_ = mask.back() == 1 ? 0 : 1;
    row_stride_ = mask[mask.size() - 2] == 1 ? 0 : mask.back();
    const int64_t size = mask.back() * mask[mask.size() - 2];
    scores.resize(scores.size() - 2);
    mask.resize(mask.size() - 2);
    starts_.reserve(s.matrices);
    Walk(MakeLoopNest(scores, scores, mask),
         [&](int64_t, int64_t j) { starts_.push_back(j * size); });
  }

  // scores += mask, for rows from `row` on of the matrices from `matrix` on.
  void AddTo(const float* mask, int64_t matrix, int64_t row, const BlockSize& block,
             int64_t columns, float* scores) const {
    if (!is_there_) return;
    for (int64_t m = matrix; m < matrix + block.matrices; ++m) {
      for (int64_t r = row; r < row + block.rows; ++r, scores += columns) {
        const float* const from = mask + starts_[m] + r * row_stride_;
        float* const to = scores;
        if (column_stride_ == 1) {
          ForEach<float>(columns, [=](int64_t i) { to[i] += from[i]; });
        } else {
          const float all = *from;
          ForEach<float>(columns, [=](int64_t i) { to[i] += all; });
        }
      }
    }
  }

 private:
  bool is_there_ = false;
  int64_t row_stride_ = 0, column_stride_ = 0;
  std::vector<int64_t> starts_;  // by matrix of the scores
};

// What dropout does to the softmax, and to its gradient.
struct Dropout {
  float factor = 1;               // of what it keeps
  const uint8_t* kept = nullptr;  // null: it keeps everything

  void Apply(int64_t begin, int64_t size, float* x) const {
    if (kept == nullptr) {
      if (factor == 1) return;
      return ForEach<float>(size, [x, f = factor](int64_t i) { x[i] *= f; });
    }
    const formulas::KeepOrDrop<float> f{factor};
    ForEach<float>(size, [x, f, stays = kept + begin](int64_t i) { x[i] = f(x[i], stays[i]); });
  }
};

// The arrays of one call; those of the other direction are null.
struct Arrays {
  const float *q, *k, *v, *mask, *dout = nullptr;
  float *out = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  Dropout dropout;
};

// The products and softmaxes of blocks of one size.
class Block {
 public:
  Block(const Sizes& s, const BlockSize& size, bool is_gradient) : s_(s), size_(size) {
    constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
    const int64_t m = size.matrices, r = size.rows, n = s.columns, d = s.depth, e = s.value_depth;
    const auto product = [m](Transpose a, Transpose b, int64_t rows, int64_t columns, int64_t k,
                             double alpha, bool adds = false) {
      GemmShape shape{a, b, rows, columns, k, alpha, m};
      shape.adds = adds;
      return std::make_unique<BatchedGemm<float>>(shape);
    };
    scores_ = product(kNo, kYes, r, n, d, s.alpha);
    softmax_ = MakeSoftmax(m * r, n);
    if (!is_gradient) {
      out_ = product(kNo, kNo, r, e, n, 1);
      return;
    }
    dweights_ = product(kNo, kYes, r, n, e, 1);
    dq_ = product(kNo, kNo, r, d, n, s.alpha);
    for (const bool adds : {false, true}) {
      dv_[adds] = product(kYes, kNo, n, e, r, 1, adds);
      dk_[adds] = product(kYes, kNo, n, d, r, s.alpha, adds);
    }
  }

  const BlockSize& size() const { return size_; }

  absl::Status Forward(const Addend& addend, const Arrays& a, int64_t matrix, int64_t row,
                       float* weights) const {
    WEFT_RETURN_IF_ERROR(Weights(addend, a, matrix, row, weights));
    a.dropout.Apply((matrix * s_.rows + row) * s_.columns, NumWeights(), weights);
    return out_->Run(weights, a.v + matrix * s_.columns * s_.value_depth,
                     a.out + (matrix * s_.rows + row) * s_.value_depth);
  }

  // `buffers`: for two times the scores of a block. Gradients of K and V are added up over blocks,
  // in order.
  absl::Status Backward(const Addend& addend, const Arrays& a, int64_t matrix, int64_t row,
                        float* buffers) const {
    float* const p = buffers;
    float* const dp = buffers + NumWeights();
    WEFT_RETURN_IF_ERROR(Weights(addend, a, matrix, row, p));
    const int64_t first_row = matrix * s_.rows + row;
    const int64_t keys = matrix * s_.columns * s_.depth;
    const int64_t values = matrix * s_.columns * s_.value_depth;
    const float* const dout = a.dout + first_row * s_.value_depth;
    WEFT_RETURN_IF_ERROR(dweights_->Run(dout, a.v + values, dp));
    a.dropout.Apply(first_row * s_.columns, NumWeights(), dp);
    for (int64_t r = 0; r < size_.matrices * size_.rows; ++r) {
      const float* const p_row = p + r * s_.columns;
      float* const dp_row = dp + r * s_.columns;
      const auto dot = static_cast<float>(SumsOf<float, 1, float>(
          s_.columns, [=](int64_t i) { return std::array<float, 1>{p_row[i] * dp_row[i]}; })[0]);
      ForEach<float>(s_.columns, [=](int64_t i) { dp_row[i] = p_row[i] * (dp_row[i] - dot); });
    }
    const bool adds = row > 0;
    if (a.dq != nullptr) {
      WEFT_RETURN_IF_ERROR(dq_->Run(dp, a.k + keys, a.dq + first_row * s_.depth));
    }
    if (a.dk != nullptr) {
      WEFT_RETURN_IF_ERROR(dk_[adds]->Run(dp, a.q + first_row * s_.depth, a.dk + keys));
    }
    if (a.dv == nullptr) return absl::OkStatus();
    a.dropout.Apply(first_row * s_.columns, NumWeights(), p);
    return dv_[adds]->Run(p, dout, a.dv + values);
  }

 private:
  static std::unique_ptr<DnnlPrimitive> MakeSoftmax(int64_t rows, int64_t columns) {
    const dnnl::memory::desc desc({rows, columns}, dnnl::memory::data_type::f32,
                                  dnnl::memory::format_tag::ab);
    const dnnl::softmax_forward::primitive_desc description(
        {dnnl::prop_kind::forward_training, desc, /*axis=*/1}, DnnlAttributes(), DnnlCpuEngine());
    return std::make_unique<DnnlPrimitive>(
        dnnl::softmax_forward(description), description.scratchpad_desc(),
        std::vector<DnnlPrimitive::Argument>{{DNNL_ARG_SRC, desc, desc}},
        std::vector<DnnlPrimitive::Argument>{{DNNL_ARG_DST, desc, desc}});
  }

  int64_t NumWeights() const { return size_.matrices * size_.rows * s_.columns; }

  // softmax(alpha Q Kᵀ + Mask).
  absl::Status Weights(const Addend& addend, const Arrays& a, int64_t matrix, int64_t row,
                       float* p) const {
    WEFT_RETURN_IF_ERROR(scores_->Run(a.q + (matrix * s_.rows + row) * s_.depth,
                                      a.k + matrix * s_.columns * s_.depth, p));
    addend.AddTo(a.mask, matrix, row, size_, s_.columns, p);
    softmax_->Run({p}, {p});
    BoundBelow(p);
    return absl::OkStatus();
  }

  // As softmax does: no weight is less than e^-64 of the largest of its row.
  void BoundBelow(float* p) const {
    constexpr float kLeast = 1.6038108905486379e-28F;
    int is_any_below = 0;  // not, unless scores are large or masked
    Vectorized([&is_any_below, p, size = NumWeights()] {
      int any = 0;
      for (int64_t i = 0; i < size; ++i) any |= p[i] < kLeast ? 1 : 0;
      is_any_below = any;
    });
    for (int64_t r = 0; is_any_below != 0 && r < size_.matrices * size_.rows; ++r) {
      float* const row = p + r * s_.columns;
      const float least = kLeast * LargestOf(row, s_.columns);
      ForEach<float>(s_.columns, [=](int64_t i) { row[i] = row[i] < least ? least : row[i]; });
    }
  }

  Sizes s_;
  BlockSize size_;
  std::unique_ptr<BatchedGemm<float>> scores_, out_, dweights_, dq_, dk_[2], dv_[2];
  std::unique_ptr<DnnlPrimitive> softmax_;
};

// The blocks of one op that has scores, divided over threads by matrices, so that each gradient is
// added up by one thread: results are the same for any number of threads.
class Blocks {
 public:
  Blocks(const Sizes& s, Addend addend, bool is_gradient)
      : s_(s), size_(s), addend_(std::move(addend)), buffers_(is_gradient ? 2 : 1) {
    const OneThread one;
    const int64_t num_groups = NumGroups();
    const int wanted = s.NumScores() < kMinParallelSize ? 1 : threads_;
    lanes_.resize(std::max<int64_t>(1, std::min<int64_t>(wanted, num_groups)));
    const BlockSize last(s.matrices - (num_groups - 1) * size_.matrices,
                         s.rows - (NumBlocks() - 1) * size_.rows);
    for (Lane& lane : lanes_) {
      lane.full = std::make_unique<Block>(s, size_, is_gradient);
      lane.last = std::make_unique<Block>(s, last, is_gradient);
    }
    ThreadBuffer(BufferSize() * lanes_.size());
  }

  // `run`: Block::Forward or Block::Backward.
  using RunBlock = absl::Status (Block::*)(const Addend&, const Arrays&, int64_t matrix,
                                           int64_t row, float* buffer) const;
  absl::Status Run(const Arrays& arrays, RunBlock run) {
    const auto num_lanes = static_cast<int64_t>(lanes_.size());
    float* const buffers = ThreadBuffer(BufferSize() * lanes_.size());
    const auto run_lanes = [&](int64_t begin, int64_t end) {
      const OneThread one;
      for (int64_t l = begin; l < end; ++l) {
        lanes_[l].status = RunLane(l, arrays, run, buffers + l * BufferSize());
      }
    };
    ForEachPart(num_lanes, 1, run_lanes);
    for (const Lane& lane : lanes_) WEFT_RETURN_IF_ERROR(lane.status);
    return absl::OkStatus();
  }

 private:
  // What one thread runs at a time.
  struct Lane {
    std::unique_ptr<Block> full, last;
    absl::Status status;
  };

  int64_t NumGroups() const { return (s_.matrices + size_.matrices - 1) / size_.matrices; }
  int64_t NumBlocks() const { return (s_.rows + size_.rows - 1) / size_.rows; }
  size_t BufferSize() const { return buffers_ * size_.matrices * size_.rows * s_.columns; }

  absl::Status RunLane(int64_t lane, const Arrays& arrays, RunBlock run, float* buffer) const {
    const auto num_lanes = static_cast<int64_t>(lanes_.size());
    const int64_t begin = NumGroups() * lane / num_lanes;
    const int64_t end = NumGroups() * (lane + 1) / num_lanes;
    try {  // no exception leaves a thread
      for (int64_t g = begin; g < end; ++g) {
        for (int64_t b = 0; b < NumBlocks(); ++b) {
          const bool is_last = size_.rows < s_.rows ? b + 1 == NumBlocks() : g + 1 == NumGroups();
          const Block& block = is_last ? *lanes_[lane].last : *lanes_[lane].full;
          WEFT_RETURN_IF_ERROR(
              (block.*run)(addend_, arrays, g * size_.matrices, b * size_.rows, buffer));
        }
      }
    } catch (const std::exception& error) {
      return absl::UnimplementedError(absl::StrCat("no kernel in oneDNN: ", error.what()));
    }
    return absl::OkStatus();
  }

  const Sizes s_;
  const BlockSize size_;
  const Addend addend_;
  const int64_t buffers_;
  const int threads_ = KernelThreads();
  std::vector<Lane> lanes_;
};

// For arguments of these types; null: there are no scores.
std::shared_ptr<Blocks> MakeBlocks(const Dims& q, const Dims& k, const Dims& v, const Tensor* mask,
                                   double alpha, bool is_gradient) {
  const Sizes s(q, k, v, alpha);
  if (s.NumScores() == 0) return nullptr;
  Dims scores = q;
  scores.back() = s.columns;
  Addend addend;
  if (mask != nullptr) addend = Addend(s, std::move(scores), mask->dims());
  return std::make_shared<Blocks>(s, std::move(addend), is_gradient);
}

void FillWithZeros(Tensor* tensor) {
  if (tensor != nullptr) std::fill_n(tensor->data<float>(), tensor->size(), 0.0F);
}

absl::StatusOr<Kernel> Attention(OpKernel op) {
  const In q = op.in("Q"), k = op.in("K"), v = op.in("V"), mask = op.in("Mask");
  const Out out = op.out("Out"), kept = op.out("Kept");
  WEFT_ASSIGN_OR_RETURN(const DropoutAttrs attrs, DropoutAttrs::Read(op.attrs()));
  if (!attrs.is_test && !kept) return absl::InvalidArgumentError("output Kept: missing");
  const double alpha = op.attrs().Float("alpha");
  const int64_t seed = op.attrs().Bool("fix_seed") ? op.attrs().Int("seed") : 0;
  return op.Make(ElementTypesOf<float>{q}, [=](const KernelContext& types, auto /*zero*/) {
    const auto blocks = MakeBlocks(q(types).dims(), k(types).dims(), v(types).dims(),
                                   mask.get(types), alpha, /*is_gradient=*/false);
    return [=](const KernelContext& ctx) -> absl::Status {
      if (blocks == nullptr) {
        FillWithZeros(&out(ctx));
        return absl::OkStatus();
      }
      Arrays arrays;
      arrays.q = q.data<float>(ctx);
      arrays.k = k.data<float>(ctx);
      arrays.v = v.data<float>(ctx);
      arrays.mask = mask.data_or_null<float>(ctx);
      arrays.out = out.data<float>(ctx);
      arrays.dropout.factor =
          static_cast<float>(attrs.is_test ? attrs.test_factor : attrs.kept_factor);
      if (!attrs.is_test) {
        std::mt19937_64 own;
        WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                              EngineOf(seed, &RandomState::dropout, ctx.random, &own));
        DropoutDraws draws(attrs, engine);
        uint8_t* const stays = kept.data<uint8_t>(ctx);
        for (int64_t i = 0; i < kept(ctx).size(); ++i) stays[i] = draws.Next();
        arrays.dropout.kept = stays;
      } else if (Tensor* const all = kept.get(ctx)) {
        std::fill_n(all->data<uint8_t>(), all->size(), uint8_t{1});
      }
      return blocks->Run(arrays, &Block::Forward);
    };
  });
}

absl::StatusOr<Kernel> AttentionGrad(OpKernel op) {
  const In q = op.in("Q"), k = op.in("K"), v = op.in("V"), mask = op.in("Mask");
  const In kept = op.in("Kept"), dout = op.in("Out@GRAD");
  const Out dq = op.out("Q@GRAD"), dk = op.out("K@GRAD"), dv = op.out("V@GRAD");
  WEFT_ASSIGN_OR_RETURN(const DropoutAttrs attrs, DropoutAttrs::Read(op.attrs()));
  if (!attrs.is_test && !kept) return absl::InvalidArgumentError("input Kept: missing");
  const double alpha = op.attrs().Float("alpha");
  return op.Make(ElementTypesOf<float>{q}, [=](const KernelContext& types, auto /*zero*/) {
    const auto blocks = MakeBlocks(q(types).dims(), k(types).dims(), v(types).dims(),
                                   mask.get(types), alpha, /*is_gradient=*/true);
    return [=](const KernelContext& ctx) -> absl::Status {
      if (blocks == nullptr) {
        for (const Out& gradient : {dq, dk, dv}) FillWithZeros(gradient.get(ctx));
        return absl::OkStatus();
      }
      Arrays arrays;
      arrays.q = q.data<float>(ctx);
      arrays.k = k.data<float>(ctx);
      arrays.v = v.data<float>(ctx);
      arrays.mask = mask.data_or_null<float>(ctx);
      arrays.dout = dout.data<float>(ctx);
      arrays.dq = dq.data_or_null<float>(ctx);
      arrays.dk = dk.data_or_null<float>(ctx);
      arrays.dv = dv.data_or_null<float>(ctx);
      arrays.dropout.factor =
          static_cast<float>(attrs.is_test ? attrs.test_factor : attrs.kept_factor);
      if (!attrs.is_test) arrays.dropout.kept = kept.data<uint8_t>(ctx);
      return blocks->Run(arrays, &Block::Backward);
    };
  });
}

}  // namespace

void AddAttentionKernels(KernelTable* table) { table->Add(kAttention, Attention, AttentionGrad); }

}  // namespace weft
