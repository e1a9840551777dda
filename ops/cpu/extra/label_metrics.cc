// Metrics of padded sequences of labels (ops/schema/extra/label_metrics_schemas.cc).
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

absl::Status NeedsLengths(absl::string_view slot) {
  return absl::UnimplementedError(
      absl::StrCat("input ", slot,
                   ": no kernel for sequences without it, of level-of-detail "
                   "offsets"));
}

// The labels of sequences, row by row.
struct Sequences {
  std::vector<int64_t> labels, lengths;
  int64_t steps = 0;

  absl::Span<const int64_t> operator[](size_t n) const {
    return absl::MakeConstSpan(labels).subspan(n * steps, lengths[n]);
  }
};

absl::StatusOr<Sequences> ReadSequences(const KernelContext& ctx, absl::string_view slot,
                                        const In& in, absl::string_view length_slot,
                                        const In& length) {
  Sequences sequences;
  sequences.steps = in(ctx).dim(1);
  WEFT_ASSIGN_OR_RETURN(sequences.lengths,
                        ReadIndices(length_slot, length(ctx), sequences.steps + 1));
  WEFT_RETURN_IF_ERROR(
      (ForElementType<int64_t, int32_t>(absl::StrCat("input ", slot), in(ctx), [&](auto tag) {
        const auto* from = in.data<typename decltype(tag)::type>(ctx);
        sequences.labels.assign(from, from + in(ctx).size());
        return absl::OkStatus();
      })));
  return sequences;
}

// InvalidArgument unless the labels, without the padding, are in [0, limit).
absl::Status CheckLabels(absl::string_view slot, const Sequences& sequences, int64_t limit) {
  for (size_t n = 0; n < sequences.lengths.size(); ++n) {
    for (int64_t label : sequences[n]) {
      if (label >= 0 && label < limit) continue;
      return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": ", label, " in sequence ",
                                                     n, " is not in [0, ", limit, ")"));
    }
  }
  return absl::OkStatus();
}

// --- chunk_eval ----------------------------------------------------------------------------------

// What a label says of its place in a chunk. A tag that a scheme does not have is -1.
struct Scheme {
  int64_t tags = 1, begin = -1, inside = -1, end = -1, single = -1;

  explicit Scheme(const std::string& name) {
    if (name == "IOB") *this = {2, 0, 1, -1, -1};
    if (name == "IOE") *this = {2, -1, 0, 1, -1};
    if (name == "IOBES") *this = {4, 0, 1, 2, 3};
  }
  Scheme(int64_t tags, int64_t begin, int64_t inside, int64_t end, int64_t single)
      : tags(tags), begin(begin), inside(inside), end(end), single(single) {}

  // Whether a chunk that has this tag is over, or one with the next tag begins, where both have one
  // type.
  bool Closes(int64_t tag) const { return Is(tag, end) || Is(tag, single); }
  bool Opens(int64_t tag) const { return Is(tag, begin) || Is(tag, single); }

 private:
  static bool Is(int64_t tag, int64_t wanted) { return wanted >= 0 && tag == wanted; }
};

struct Chunk {
  int64_t begin, end, type;
  friend bool operator==(const Chunk& a, const Chunk& b) {
    return a.begin == b.begin && a.end == b.end && a.type == b.type;
  }
};

// A label is type * tags + tag, or `types` * tags outside of all chunks. A chunk ends before
// another type, after a tag that closes it, and before one that opens the next. As in Paddle, a
// chunk of a scheme without such tags (plain) is as long as its type stays.
std::vector<Chunk> ChunksOf(absl::Span<const int64_t> labels, const Scheme& scheme, int64_t types,
                            const std::vector<int64_t>& excluded) {
  std::vector<Chunk> chunks;
  int64_t open_type = -1, last_tag = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(labels.size()); ++i) {
    const int64_t type = labels[i] / scheme.tags, tag = labels[i] % scheme.tags;
    const bool goes_on = open_type == type && !scheme.Closes(last_tag) && !scheme.Opens(tag);
    if (open_type >= 0 && !goes_on) chunks.back().end = i;
    open_type = type < types ? type : -1;
    if (open_type >= 0 && !goes_on)
      chunks.push_back({i, static_cast<int64_t>(labels.size()), type});
    last_tag = tag;
  }
  chunks.erase(std::remove_if(
                   chunks.begin(), chunks.end(),
                   [&](const Chunk& chunk) { return absl::c_linear_search(excluded, chunk.type); }),
               chunks.end());
  return chunks;
}

absl::StatusOr<Kernel> ChunkEval(OpKernel op) {
  const In inference = op.in("Inference"), label = op.in("Label"), length = op.in("SeqLength");
  const Out precision = op.out("Precision"), recall = op.out("Recall"), f1 = op.out("F1-Score");
  const std::array counts = {op.out("NumInferChunks"), op.out("NumLabelChunks"),
                             op.out("NumCorrectChunks")};
  const Scheme scheme(op.attrs().String("chunk_scheme"));
  const int64_t types = op.attrs().Int("num_chunk_types");
  const std::vector<int64_t> excluded = op.attrs().Ints("excluded_chunk_types");
  if (!length) return NeedsLengths("SeqLength");
  return op.Make(Indices(inference), [=](const KernelContext& ctx, auto) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Sequences found,
                          ReadSequences(ctx, "Inference", inference, "SeqLength", length));
    WEFT_ASSIGN_OR_RETURN(const Sequences expected,
                          ReadSequences(ctx, "Label", label, "SeqLength", length));
    WEFT_RETURN_IF_ERROR(CheckLabels("Inference", found, types * scheme.tags + 1));
    WEFT_RETURN_IF_ERROR(CheckLabels("Label", expected, types * scheme.tags + 1));
    std::array<int64_t, 3> sums = {};
    for (size_t n = 0; n < found.lengths.size(); ++n) {
      const auto chunks = ChunksOf(found[n], scheme, types, excluded);
      const auto labels = ChunksOf(expected[n], scheme, types, excluded);
      sums[0] += static_cast<int64_t>(chunks.size());
      sums[1] += static_cast<int64_t>(labels.size());
      sums[2] += absl::c_count_if(
          chunks, [&](const Chunk& chunk) { return absl::c_linear_search(labels, chunk); });
    }
    const auto share = [&](int64_t of) {
      return of == 0 ? 0.0 : static_cast<double>(sums[2]) / static_cast<double>(of);
    };
    const double p = share(sums[0]), r = share(sums[1]);
    const auto set = [&](const Out& out, double value) {
      if (float* to = out.data_or_null<float>(ctx)) *to = static_cast<float>(value);
    };
    set(precision, p);
    set(recall, r);
    set(f1, sums[2] == 0 ? 0 : 2 * p * r / (p + r));
    for (size_t k = 0; k < sums.size(); ++k) {
      if (int64_t* to = counts[k].data_or_null<int64_t>(ctx)) *to = sums[k];
    }
    return absl::OkStatus();
  });
}

// --- edit_distance -------------------------------------------------------------------------------

// How many labels must be inserted, deleted or replaced to make one sequence the other.
int64_t Distance(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  std::vector<int64_t> costs(b.size() + 1);  // from the first labels of a, to those of b
  std::iota(costs.begin(), costs.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = costs[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = costs[j + 1];
      costs[j + 1] = std::min({replaced, costs[j] + 1, diagonal + 1});
    }
  }
  return costs.back();
}

// Out: the distance of each Hyps from its Refs, divided by the length of Refs with `normalized`.
absl::StatusOr<Kernel> EditDistance(OpKernel op) {
  const In hyps = op.in("Hyps"), hyps_length = op.in("HypsLength");
  const In refs = op.in("Refs"), refs_length = op.in("RefsLength");
  const Out out = op.out("Out"), count = op.out("SequenceNum");
  const bool is_normalized = op.attrs().Bool("normalized");
  if (!hyps_length) return NeedsLengths("HypsLength");
  if (!refs_length) return NeedsLengths("RefsLength");
  return op.Make(Indices(hyps), [=](const KernelContext& ctx, auto) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Sequences found,
                          ReadSequences(ctx, "Hyps", hyps, "HypsLength", hyps_length));
    WEFT_ASSIGN_OR_RETURN(const Sequences expected,
                          ReadSequences(ctx, "Refs", refs, "RefsLength", refs_length));
    float* const to = out.data_or_null<float>(ctx);
    for (size_t n = 0; n < found.lengths.size(); ++n) {
      double distance = static_cast<double>(Distance(found[n], expected[n]));
      if (is_normalized && expected.lengths[n] == 0) {
        return absl::InvalidArgumentError(absl::StrCat("input RefsLength: 0 in sequence ", n,
                                                       ", by which the distance is divided"));
      }
      if (is_normalized) distance /= static_cast<double>(expected.lengths[n]);
      if (to != nullptr) to[n] = static_cast<float>(distance);
    }
    if (int64_t* sequences = count.data_or_null<int64_t>(ctx)) {
      *sequences = static_cast<int64_t>(found.lengths.size());
    }
    return absl::OkStatus();
  });
}

// --- ctc_align -----------------------------------------------------------------------------------

// Output: Input without blanks and, with merge_repeated, without repetitions; then padding_value.
absl::StatusOr<Kernel> CtcAlign(OpKernel op) {
  const In input = op.in("Input"), length = op.in("InputLength");
  const Out output = op.out("Output"), output_length = op.out("OutputLength");
  const int64_t blank = op.attrs().Int("blank"), padding = op.attrs().Int("padding_value");
  const bool merges = op.attrs().Bool("merge_repeated");
  if (!length) return NeedsLengths("InputLength");
  return op.Make(Indices(input), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Sequences sequences,
                          ReadSequences(ctx, "Input", input, "InputLength", length));
    T *const to = output.data_or_null<T>(ctx), *const sizes = output_length.data_or_null<T>(ctx);
    for (size_t n = 0; n < sequences.lengths.size(); ++n) {
      std::vector<T> aligned;
      int64_t last = blank;
      for (int64_t label : sequences[n]) {
        if (label != blank && !(merges && label == last)) aligned.push_back(static_cast<T>(label));
        last = label;
      }
      if (sizes != nullptr) sizes[n] = static_cast<T>(aligned.size());
      aligned.resize(sequences.steps, static_cast<T>(padding));
      if (to != nullptr) absl::c_copy(aligned, to + n * sequences.steps);
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddLabelMetricKernels(KernelTable* table) {
  table->Add("chunk_eval", ChunkEval);
  table->Add("edit_distance", EditDistance);
  table->Add("ctc_align", CtcAlign);
}

}  // namespace weft
