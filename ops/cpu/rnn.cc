// Recurrent networks: layers of cells, each for one direction of time.
//
// A cell computes from its input x and its hidden state h, with a = Wx x + bx and b = Wh h + bh,
//   RNN_TANH, RNN_RELU  h' = f(a + b)
//   LSTM                i, f, o = σ(a + b), g = tanh(a + b); c' = f c + i g; h' = o tanh(c')
//   GRU                 r, z = σ(a + b), n = tanh(a + r b);  h' = z h + (1 - z) n
// where the rows of the weights are those for i, f, g, o, or r, z, n. Beyond the length of a
// sequence states stay as they are, and outputs are 0. Between layers elements are dropped out,
// with probability p, and the others divided by 1 - p; DropoutState keeps which ones stay.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

enum class Mode { kTanh, kRelu, kLstm, kGru };

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

struct Network {
  Mode mode = Mode::kTanh;
  int64_t time = 0, batch = 0, input = 0, hidden = 0, layers = 1, directions = 1;
  double dropout = 0;  // between layers
  int64_t seed = 0;

  static absl::StatusOr<Network> Read(const OpAttrs& attrs) {
    Network n;
    const std::string& mode = attrs.String("mode");  // checked by inference
    n.mode = mode == "LSTM"       ? Mode::kLstm
             : mode == "GRU"      ? Mode::kGru
             : mode == "RNN_RELU" ? Mode::kRelu
                                  : Mode::kTanh;
    n.hidden = attrs.Int("hidden_size");
    n.layers = attrs.Int("num_layers");
    n.directions = attrs.Bool("is_bidirec") ? 2 : 1;
    const double p = attrs.Float("dropout_prob");
    if (n.layers > 1 && !attrs.Bool("is_test")) n.dropout = p;
    n.seed = attrs.Int("seed");
    return n;
  }

  Network For(const Dims& x) const {
    Network n = *this;
    n.time = x[0];
    n.batch = x[1];
    n.input = x[2];
    return n;
  }

  int64_t rows() const { return hidden * (mode == Mode::kLstm ? 4 : mode == Mode::kGru ? 3 : 1); }
  int64_t cells() const { return layers * directions; }
  int64_t layer_of(int64_t cell) const { return cell / directions; }
  bool is_reverse(int64_t cell) const { return cell % directions == 1; }
  int64_t width(int64_t cell) const { return cell < directions ? input : out_width(); }
  int64_t out_width() const { return directions * hidden; }
  int64_t places() const { return time * batch; }
  int64_t state_size() const { return batch * hidden; }
  // The masks of kept outputs of each layer except the last.
  int64_t num_marks() const { return dropout > 0 ? (layers - 1) * places() * out_width() : 0; }

  // The variables of WeightList.
  int x_weight(int64_t cell) const { return static_cast<int>(2 * cell); }
  int h_weight(int64_t cell) const { return static_cast<int>(2 * cell + 1); }
  int x_bias(int64_t cell) const { return static_cast<int>(2 * (cells() + cell)); }
  int h_bias(int64_t cell) const { return static_cast<int>(2 * (cells() + cell) + 1); }
};

// What a cell keeps for each time step and sequence.
template <typename T>
struct Trace {
  T* gates;   // i, f, g, o or r, z, n or h'; [time, batch, rows]
  T* hidden;  // h'; [time, batch, hidden]
  T* other;   // of LSTM c', of GRU the part of b for n, else 0; [time, batch, hidden]

  Trace(const Network& n, T* reserve, int64_t cell)
      : gates(reserve + cell * Size(n)),
        hidden(gates + n.places() * n.rows()),
        other(hidden + n.places() * n.hidden) {}

  static int64_t Size(const Network& n) { return n.places() * (n.rows() + 2 * n.hidden); }
};

// The lengths of the sequences: the number of time steps if there is no tensor.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const Network& n, const Tensor* tensor) {
  std::vector<int64_t> lengths(n.batch, n.time);
  if (tensor == nullptr) return lengths;
  const absl::Status status =
      ForElementType<int32_t, int64_t>("input SequenceLength", *tensor, [&](auto tag) {
        std::copy_n(tensor->data<typename decltype(tag)::type>(), n.batch, lengths.begin());
        return absl::OkStatus();
      });
  WEFT_RETURN_IF_ERROR(status);
  for (int64_t b = 0; b < n.batch; ++b) {
    if (lengths[b] >= 0 && lengths[b] <= n.time) continue;
    return absl::InvalidArgumentError(absl::StrCat("input SequenceLength: expected 0 to ", n.time,
                                                   ", found ", lengths[b], " of sequence ", b));
  }
  return lengths;
}

// Calls visit(t, previous t) in the direction of the cell, or in reverse; the first time step has
// no previous one: -1.
template <typename Visit>
void ForEachTime(const Network& n, int64_t cell, bool back, Visit visit) {
  for (int64_t i = 0; i < n.time; ++i) {
    const int64_t step = back ? n.time - 1 - i : i;
    if (n.is_reverse(cell)) {
      visit(n.time - 1 - step, step == 0 ? -1 : n.time - step);
    } else {
      visit(step, step - 1);
    }
  }
}

// The output of a layer, from what its cells kept: [time, batch, directions hidden].
template <typename T>
void WriteOutput(const Network& n, const std::vector<int64_t>& lengths, T* reserve, int64_t layer,
                 T* to) {
  for (int64_t d = 0; d < n.directions; ++d) {
    const Trace<T> trace(n, reserve, layer * n.directions + d);
    for (int64_t place = 0; place < n.places(); ++place) {
      const bool is_there = place / n.batch < lengths[place % n.batch];
      const T* from = trace.hidden + place * n.hidden;
      T* out = to + place * n.out_width() + d * n.hidden;
      for (int64_t j = 0; j < n.hidden; ++j) out[j] = is_there ? from[j] : T(0);
    }
  }
}

// A nonzero seed gives the same draws in every step; without one they come from the generator of
// the rank.
absl::Status DrawMarks(const Network& n, RandomState* random, uint8_t* marks) {
  if (n.num_marks() == 0) return absl::OkStatus();
  std::mt19937_64 own;
  WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                        EngineOf(n.seed, &RandomState::noise, random, &own));
  std::uniform_real_distribution<float> draw(0, 1);
  const auto probability = static_cast<float>(n.dropout);
  for (int64_t i = 0; i < n.num_marks(); ++i) marks[i] = !(draw(*engine) < probability);
  return absl::OkStatus();
}

// Applies the dropout between `layer` and the next one: to the output of the first, or to the
// gradient of the input of the second.
template <typename T>
void DropOut(const Network& n, const uint8_t* marks, int64_t layer, T* values) {
  if (n.dropout == 0) return;
  const int64_t size = n.places() * n.out_width();
  const T factor = n.dropout == 1 ? T(0) : static_cast<T>(1 / (1 - n.dropout));
  marks += layer * size;
  for (int64_t i = 0; i < size; ++i) values[i] = marks[i] != 0 ? values[i] * factor : T(0);
}

// The matrix products of a cell.
struct CellGemms {
  Gemm x{Transpose::kNo, Transpose::kYes}, h{Transpose::kNo, Transpose::kYes};
  Gemm dx{Transpose::kNo, Transpose::kNo}, dh{Transpose::kNo, Transpose::kNo};
  Gemm dx_weight{Transpose::kYes, Transpose::kNo}, dh_weight{Transpose::kYes, Transpose::kNo};
};

// --- Forward -------------------------------------------------------------------------------------

// One step of one sequence. `gates` holds Wx x and receives what is kept of it; `b` is Wh h.
template <typename T>
void Step(const Network& n, const T* x_bias, const T* h_bias, const T* b, const T* h, const T* c,
          T* gates, T* new_h, T* other) {
  const int64_t size = n.hidden;
  const auto sum = [=](int64_t row) { return gates[row] + x_bias[row] + b[row] + h_bias[row]; };
  if (n.mode == Mode::kLstm) {
    ForEach<T>(size, [=](int64_t j) {
      const T i = Sigmoid(sum(j)), f = Sigmoid(sum(size + j));
      const T g = std::tanh(sum(2 * size + j)), o = Sigmoid(sum(3 * size + j));
      gates[j] = i;
      gates[size + j] = f;
      gates[2 * size + j] = g;
      gates[3 * size + j] = o;
      other[j] = f * c[j] + i * g;
      new_h[j] = o * std::tanh(other[j]);
    });
  } else if (n.mode == Mode::kGru) {
    ForEach<T>(size, [=](int64_t j) {
      const T r = Sigmoid(sum(j)), z = Sigmoid(sum(size + j));
      const int64_t row = 2 * size + j;
      other[j] = b[row] + h_bias[row];
      const T new_gate = std::tanh(gates[row] + x_bias[row] + r * other[j]);
      gates[j] = r;
      gates[size + j] = z;
      gates[row] = new_gate;
      new_h[j] = z * h[j] + (1 - z) * new_gate;
    });
  } else {
    const bool is_tanh = n.mode == Mode::kTanh;
    ForEach<T>(size, [=](int64_t j) {
      new_h[j] = is_tanh ? std::tanh(sum(j)) : std::max(sum(j), T(0));
      gates[j] = new_h[j];
      other[j] = 0;
    });
  }
}

// Runs a cell over time. `h` and `c` are its initial states.
template <typename T>
void RunCell(const Network& n, int64_t cell, const std::vector<int64_t>& lengths, const T* x,
             const T* h, const T* c, const KernelContext& ctx, In weights, CellGemms* gemms,
             const Trace<T>& trace) {
  const int64_t rows = n.rows(), size = n.hidden;
  const T *x_bias = weights.data<T>(ctx, n.x_bias(cell)),
          *h_bias = weights.data<T>(ctx, n.h_bias(cell));
  gemms->x.Run(n.places(), rows, n.width(cell), x, weights.data<T>(ctx, n.x_weight(cell)),
               trace.gates);
  std::vector<T> b(n.batch * rows);
  ForEachTime(n, cell, /*back=*/false, [&](int64_t t, int64_t previous) {
    const T* old_h = previous < 0 ? h : trace.hidden + previous * n.state_size();
    const T* old_c = previous < 0 ? c : trace.other + previous * n.state_size();
    gemms->h.Run(n.batch, rows, size, old_h, weights.data<T>(ctx, n.h_weight(cell)), b.data());
    for (int64_t s = 0; s < n.batch; ++s) {
      const int64_t place = t * n.batch + s;
      T *new_h = trace.hidden + place * size, *other = trace.other + place * size;
      if (t < lengths[s]) {
        Step(n, x_bias, h_bias, b.data() + s * rows, old_h + s * size,
             old_c == nullptr ? nullptr : old_c + s * size, trace.gates + place * rows, new_h,
             other);
      } else {
        std::copy_n(old_h + s * size, size, new_h);
        if (n.mode == Mode::kLstm) {
          std::copy_n(old_c + s * size, size, other);
        } else {
          std::fill_n(other, size, T(0));
        }
      }
    }
  });
}

// Inference checks this too, but an attribute alone must not determine the kernel's size.
absl::Status CheckWeightCount(const Network& network, const In& weights) {
  if (weights.count() == 4 * network.cells()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input WeightList: expected ", 4 * network.cells(),
                                                 " variables, found ", weights.count()));
}

absl::StatusOr<Kernel> Rnn(OpKernel op) {
  const In x = op.in("Input"), states = op.in("PreState"), weights = op.in("WeightList");
  const In length = op.in("SequenceLength");
  const Out out = op.out("Out"), last = op.out("State"), reserve = op.out("Reserve");
  const Out dropout_state = op.out("DropoutState");
  WEFT_ASSIGN_OR_RETURN(const Network network, Network::Read(op.attrs()));
  op.Supports(Floats(x));
  WEFT_RETURN_IF_ERROR(CheckWeightCount(network, weights));
  auto gemms = std::make_shared<std::vector<CellGemms>>(network.cells());
  return op.Make(
      Floats(x),
      [=, scratch = Tensor(), scratch_marks = Tensor()](const KernelContext& ctx,
                                                        auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        const Network n = network.For(x(ctx).dims());
        WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, ReadLengths(n, length.get(ctx)));
        Tensor* const dropped =
            dropout_state.get(ctx) != nullptr ? dropout_state.get(ctx) : &scratch_marks;
        dropped->Resize(DType::kUint8, {n.num_marks()});
        uint8_t* const marks = dropped->data<uint8_t>();
        WEFT_RETURN_IF_ERROR(DrawMarks(n, ctx.random, marks));
        Tensor* const kept = reserve.get(ctx) != nullptr ? reserve.get(ctx) : &scratch;
        kept->Resize(DTypeOf<T>::value, {n.cells() * Trace<T>::Size(n)});
        T* const traces = kept->data<T>();
        std::vector<T> layer_input(n.layers > 1 ? n.places() * n.out_width() : 0);
        for (int64_t cell = 0; cell < n.cells(); ++cell) {
          const int64_t layer = n.layer_of(cell), state = cell * n.state_size();
          if (layer > 0 && !n.is_reverse(cell)) {
            WriteOutput(n, lengths, traces, layer - 1, layer_input.data());
            DropOut(n, marks, layer - 1, layer_input.data());
          }
          const Trace<T> trace(n, traces, cell);
          RunCell(n, cell, lengths, layer == 0 ? x.data<T>(ctx) : layer_input.data(),
                  states.data<T>(ctx, 0) + state,
                  n.mode == Mode::kLstm ? states.data<T>(ctx, 1) + state : nullptr, ctx, weights,
                  &(*gemms)[cell], trace);
          const int64_t end = n.is_reverse(cell) ? 0 : n.time - 1;
          for (int i = 0; i < last.count(); ++i) {
            Tensor* const to = last.get(ctx, i);
            if (to == nullptr) continue;
            const T* from = n.time == 0
                                ? states.data<T>(ctx, i) + state
                                : (i == 0 ? trace.hidden : trace.other) + end * n.state_size();
            std::copy_n(from, n.state_size(), to->data<T>() + state);
          }
        }
        WriteOutput(n, lengths, traces, n.layers - 1, out.data<T>(ctx));
        return absl::OkStatus();
      });
}

// --- Backward ------------------------------------------------------------------------------------

// One step of one sequence, backward: from dh, the gradient of h', and dc, that of c', to those of
// h and c, in place, and those of a and b. The gradient of h does not include the part through b.
template <typename T>
void StepBack(const Network& n, const T* gates, const T* other, const T* h, const T* c, T* dh,
              T* dc, T* da, T* db) {
  const int64_t size = n.hidden;
  if (n.mode == Mode::kLstm) {
    ForEach<T>(size, [=](int64_t j) {
      const T i = gates[j], f = gates[size + j], g = gates[2 * size + j], o = gates[3 * size + j];
      const T tanh_c = std::tanh(other[j]);
      const T cell = dc[j] + dh[j] * o * (1 - tanh_c * tanh_c);
      da[j] = cell * g * i * (1 - i);
      da[size + j] = cell * c[j] * f * (1 - f);
      da[2 * size + j] = cell * i * (1 - g * g);
      da[3 * size + j] = dh[j] * tanh_c * o * (1 - o);
      dc[j] = cell * f;
      dh[j] = 0;
    });
  } else if (n.mode == Mode::kGru) {
    ForEach<T>(size, [=](int64_t j) {
      const T r = gates[j], z = gates[size + j], new_gate = gates[2 * size + j];
      const T dn = dh[j] * (1 - z) * (1 - new_gate * new_gate);
      da[j] = dn * other[j] * r * (1 - r);
      da[size + j] = dh[j] * (h[j] - new_gate) * z * (1 - z);
      da[2 * size + j] = dn;
      db[2 * size + j] = dn * r;
      dh[j] *= z;
    });
  } else {
    const bool is_tanh = n.mode == Mode::kTanh;
    ForEach<T>(size, [=](int64_t j) {
      const T y = gates[j];
      da[j] = is_tanh ? dh[j] * (1 - y * y) : (y > 0 ? dh[j] : T(0));
      dh[j] = 0;
    });
  }
  std::copy_n(da, n.mode == Mode::kGru ? 2 * size : n.rows(), db);
}

template <typename T>
void AddColumns(const std::vector<T>& from, int64_t columns, T* to) {
  std::vector<double> sums(columns);
  for (size_t row = 0; row < from.size(); row += columns) {
    for (int64_t k = 0; k < columns; ++k) sums[k] += from[row + k];
  }
  std::copy(sums.begin(), sums.end(), to);
}

// Inputs and outputs of a cell's gradient.
template <typename T>
struct CellBack {
  const T *x, *h, *c;  // its input, and its initial states
  const T* dout;       // of the first output; [time, batch, directions hidden]
  T *dh, *dc;          // of its last states, then of its initial ones
  T* dx;               // to be added to, or null
};

template <typename T>
void RunCellBack(const Network& n, int64_t cell, const std::vector<int64_t>& lengths,
                 const CellBack<T>& back, const KernelContext& ctx, In weights, Out dweights,
                 CellGemms* gemms, const Trace<T>& trace) {
  const int64_t rows = n.rows(), size = n.hidden, width = n.width(cell);
  std::vector<T> da(n.places() * rows), db(n.places() * rows), old_hs(n.places() * size);
  std::vector<T> through_b(n.state_size());
  const T* h_weight = weights.data<T>(ctx, n.h_weight(cell));
  ForEachTime(n, cell, /*back=*/true, [&](int64_t t, int64_t previous) {
    const T* old_h = previous < 0 ? back.h : trace.hidden + previous * n.state_size();
    const T* old_c = previous < 0 ? back.c : trace.other + previous * n.state_size();
    std::copy_n(old_h, n.state_size(), old_hs.data() + t * n.state_size());
    for (int64_t s = 0; s < n.batch; ++s) {
      if (t >= lengths[s]) continue;
      const int64_t place = t * n.batch + s;
      T* const dh = back.dh + s * size;
      const T* dout = back.dout + place * n.out_width();
      for (int64_t j = 0; j < size; ++j) dh[j] += dout[j];
      StepBack(n, trace.gates + place * rows, trace.other + place * size, old_h + s * size,
               old_c == nullptr ? nullptr : old_c + s * size, dh,
               back.dc == nullptr ? nullptr : back.dc + s * size, da.data() + place * rows,
               db.data() + place * rows);
    }
    gemms->dh.Run(n.batch, size, rows, db.data() + t * n.batch * rows, h_weight, through_b.data());
    for (int64_t i = 0; i < n.state_size(); ++i) back.dh[i] += through_b[i];
  });
  if (Tensor* to = dweights.get(ctx, n.x_weight(cell))) {
    gemms->dx_weight.Run(rows, width, n.places(), da.data(), back.x, to->data<T>());
  }
  if (Tensor* to = dweights.get(ctx, n.h_weight(cell))) {
    gemms->dh_weight.Run(rows, size, n.places(), db.data(), old_hs.data(), to->data<T>());
  }
  if (Tensor* to = dweights.get(ctx, n.x_bias(cell))) AddColumns(da, rows, to->data<T>());
  if (Tensor* to = dweights.get(ctx, n.h_bias(cell))) AddColumns(db, rows, to->data<T>());
  if (back.dx == nullptr) return;
  std::vector<T> dx(n.places() * width);
  gemms->dx.Run(n.places(), width, rows, da.data(), weights.data<T>(ctx, n.x_weight(cell)),
                dx.data());
  for (size_t i = 0; i < dx.size(); ++i) back.dx[i] += dx[i];
}

absl::StatusOr<Kernel> RnnGrad(OpKernel op) {
  const In x = op.in("Input"), states = op.in("PreState"), weights = op.in("WeightList");
  const In length = op.in("SequenceLength"), reserve = op.in("Reserve");
  const In dout = op.in("Out@GRAD"), dlast = op.in("State@GRAD");
  const In dropout_state = op.in("DropoutState");
  op.Ignore({"Out"}).AllowEmptyArguments(dlast);
  const Out dx = op.out("Input@GRAD"), dstates = op.out("PreState@GRAD");
  const Out dweights = op.out("WeightList@GRAD");
  WEFT_ASSIGN_OR_RETURN(const Network network, Network::Read(op.attrs()));
  if (!reserve) return absl::InvalidArgumentError("input Reserve: missing");
  op.Supports(Floats(x));
  WEFT_RETURN_IF_ERROR(CheckWeightCount(network, weights));
  auto gemms = std::make_shared<std::vector<CellGemms>>(network.cells());
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Network n = network.For(x(ctx).dims());
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, ReadLengths(n, length.get(ctx)));
    WEFT_RETURN_IF_ERROR(CheckSize("Reserve", reserve(ctx), n.cells() * Trace<T>::Size(n)));
    const uint8_t* marks = nullptr;
    if (n.num_marks() > 0) {
      if (dropout_state.get(ctx) == nullptr) {
        return absl::InvalidArgumentError("input DropoutState: missing");
      }
      WEFT_RETURN_IF_ERROR(CheckDType("DropoutState", dropout_state(ctx), DType::kUint8));
      WEFT_RETURN_IF_ERROR(CheckSize("DropoutState", dropout_state(ctx), n.num_marks()));
      marks = dropout_state.data<uint8_t>(ctx);
    }
    // The traces are only read.
    T* const traces = const_cast<T*>(reserve.data<T>(ctx));
    // The gradients of all states, and of the outputs of a layer and the one before it.
    std::array<std::vector<T>, 2> of_states;
    for (int i = 0; i < states.count(); ++i) {
      of_states[i].resize(n.cells() * n.state_size());
      if (const T* from = dlast.data_or_null<T>(ctx, i)) {
        std::copy_n(from, of_states[i].size(), of_states[i].data());
      }
    }
    std::vector<T> douts(dout.data<T>(ctx), dout.data<T>(ctx) + dout(ctx).size()), dinputs, inputs;
    for (int64_t layer = n.layers - 1; layer >= 0; --layer) {
      const int64_t width = n.width(layer * n.directions);
      if (layer > 0) {
        inputs.resize(n.places() * width);
        WriteOutput(n, lengths, traces, layer - 1, inputs.data());
        DropOut(n, marks, layer - 1, inputs.data());
      }
      dinputs.assign(layer > 0 || dx.get(ctx) != nullptr ? n.places() * width : 0, T(0));
      for (int64_t d = 0; d < n.directions; ++d) {
        const int64_t cell = layer * n.directions + d, state = cell * n.state_size();
        const bool has_c = n.mode == Mode::kLstm;
        CellBack<T> back;
        back.x = layer == 0 ? x.data<T>(ctx) : inputs.data();
        back.h = states.data<T>(ctx, 0) + state;
        back.c = has_c ? states.data<T>(ctx, 1) + state : nullptr;
        back.dout = douts.data() + d * n.hidden;
        back.dh = of_states[0].data() + state;
        back.dc = has_c ? of_states[1].data() + state : nullptr;
        back.dx = dinputs.empty() ? nullptr : dinputs.data();
        RunCellBack(n, cell, lengths, back, ctx, weights, dweights, &(*gemms)[cell],
                    Trace<T>(n, traces, cell));
      }
      if (layer > 0) DropOut(n, marks, layer - 1, dinputs.data());
      douts.swap(dinputs);
    }
    if (Tensor* to = dx.get(ctx)) std::copy_n(douts.data(), to->size(), to->data<T>());
    for (int i = 0; i < dstates.count(); ++i) {
      if (Tensor* to = dstates.get(ctx, i)) {
        std::copy_n(of_states[i].data(), to->size(), to->data<T>());
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddRnnKernels(KernelTable* table) { table->Add("rnn", Rnn, RnnGrad); }

}  // namespace weft
