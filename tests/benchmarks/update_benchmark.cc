// How fast do kernels update parameters on the host, on one thread? Times updates, a copy of as
// many bytes read and written together, and PyTorch's fused optimizers, in turn, and prints medians
// of milliseconds and of the ratios within a round, and the best of these ratios.
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:update_benchmark --
//       [--elements 16777216] [--rounds 7] [--python PYTHON]
//
// PyTorch is measured if --python names a Python that has it. It has no update of half-precision
// parameters by master weights, and no Lamb.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/cpu/testing.h"
#include "ops/float16.h"

namespace weft {
namespace {

using testing::AttrValues;
using testing::OpRunner;
using testing::SlotPointers;

constexpr int kCalls = 5;  // the fastest counts

double Milliseconds(const std::function<void()>& run) {
  double least = 1e9;
  for (int call = 0; call < kCalls; ++call) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    least = std::min(least, time.count());
  }
  return least;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename T>
Tensor Filled(DType dtype, int64_t n, float value) {
  Tensor tensor;
  tensor.Resize(dtype, {n});
  std::fill_n(tensor.data<T>(), n, T(value));
  return tensor;
}
Tensor Floats(int64_t n, float value) { return Filled<float>(DType::kFloat32, n, value); }

enum class Offload { kFull, kStates };

// The work of the host for an update, with its tensors.
class Update {
 public:
  // Gradient and parameter are of type `dtype`; in half precision, the host has a master weight.
  // kStates: the host computes the change of the parameter, rounded to `dtype`, as weft run does
  // (executor/rewrites/updates_from_zero.h).
  Update(const std::string& type, DType dtype, Offload offload, int64_t n)
      : n_(n),
        dtype_(dtype),
        offload_(offload),
        is_lamb_(type == "lamb"),
        param_(OfType(dtype, n, 1)),
        grad_(OfType(dtype, n, 0.5F)),
        first_(Floats(n, 0)) {
    const bool is_half = dtype != DType::kFloat32, is_split = offload == Offload::kStates;
    SlotPointers inputs = {{"Param", {&param_}}, {"Grad", {&grad_}}, {"LearningRate", {&rate_}}};
    SlotPointers outputs = {{"ParamOut", {&param_}}};
    const auto state = [&](const std::string& slot, Tensor* tensor) {
      inputs.push_back({slot, {tensor}});
      outputs.push_back({slot + "Out", {tensor}});
    };
    if (is_half && !is_split) {
      master_ = Floats(n, 1);
      state("MasterParam", &master_);
    }
    AttrValues attrs;
    if (type == "momentum") {
      state("Velocity", &first_);
      attrs = {{"mu", 0.9F}};
    } else {
      second_ = Floats(n, 0);
      state("Moment1", &first_);
      state("Moment2", &second_);
      state("Beta1Pow", &power1_);
      state("Beta2Pow", &power2_);
    }
    if (type == "adamw" && !is_split) attrs = {{"with_decay", true}, {"coeff", 0.01F}};
    if (type == "lamb" && !is_split) attrs = {{"weight_decay", 0.01F}};
    // As pass optimizer-offload writes it, norms and decay are the accelerator's.
    op_ = is_split ? OpRunner::MakeFromZero(type == "lamb" ? "adam" : type, inputs, attrs, outputs)
                   : OpRunner::Make(type, inputs, attrs, outputs);
    Check(op_.status());
  }

  void Run() { Check(op_->Run()); }

  // Read and written: gradient once, states twice, a parameter of half precision once, and a
  // parameter or master weight in fp32 twice. Lamb reads states and parameter once more, when it
  // knows their norms. With kStates, the change once, as it is sent.
  int64_t bytes() const {
    const int64_t states = second_.allocated() ? 2 : 1;
    const auto size = static_cast<int64_t>(SizeOf(dtype_));
    if (offload_ == Offload::kStates) return n_ * (2 * size + 8 * states);
    return n_ * (size + (size == 4 ? 0 : size) + 8 + 8 * states + (is_lamb_ ? 12 : 0));
  }

 private:
  static Tensor OfType(DType dtype, int64_t n, float value) {
    if (dtype == DType::kFloat16) return Filled<Float16>(dtype, n, value);
    if (dtype == DType::kBFloat16) return Filled<BFloat16>(dtype, n, value);
    return Floats(n, value);
  }

  static void Check(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "update_benchmark: %s\n", status.ToString().c_str());
    std::exit(1);
  }

  const int64_t n_;
  const DType dtype_;
  const Offload offload_;
  const bool is_lamb_;
  Tensor param_, grad_, master_, first_, second_;
  Tensor rate_ = Floats(1, 1e-3F), power1_ = Floats(1, 0.9F), power2_ = Floats(1, 0.999F);
  absl::StatusOr<OpRunner> op_;
};

// What update_pytorch.py prints; 0 if PyTorch has no such update.
double TorchMilliseconds(const std::string& python, const std::string& type, int64_t n) {
  const std::string command =
      absl::StrCat(python, " tests/benchmarks/update_pytorch.py ", type, " ", n, " ", kCalls);
  FILE* const pipe = popen(command.c_str(), "r");
  double milliseconds = 0;
  const bool is_read = pipe != nullptr && std::fscanf(pipe, "%lf", &milliseconds) == 1;
  if (pipe == nullptr || pclose(pipe) != 0 || !is_read) {
    std::fprintf(stderr, "update_benchmark: failed: %s\n", command.c_str());
    std::exit(1);
  }
  return milliseconds;
}

void Measure(const std::string& type, DType dtype, Offload offload, int64_t n, int rounds,
             const std::string& python) {
  Update update(type, dtype, offload, n);
  const std::vector<char> from(update.bytes() / 2, 1);
  std::vector<char> to(from.size(), 2);
  std::vector<double> times, speeds, torch_times, torch_ratios;
  const bool has_torch =
      !python.empty() && dtype == DType::kFloat32 && offload == Offload::kFull && type != "lamb";
  for (int round = 0; round < rounds; ++round) {
    const double copy = Milliseconds([&] { std::memcpy(to.data(), from.data(), to.size()); });
    const double weft = Milliseconds([&] { update.Run(); });
    times.push_back(weft);
    speeds.push_back(copy / weft);
    if (!has_torch) continue;
    torch_times.push_back(TorchMilliseconds(python, type, n));
    torch_ratios.push_back(weft / torch_times.back());
  }
  const char* const states = offload == Offload::kStates ? ", states" : "";
  std::printf("%-24s %10.2f %10.2f %10.2f",
              absl::StrCat(type, ", ", DTypeName(dtype), states).c_str(), Median(times),
              Median(speeds), *std::max_element(speeds.begin(), speeds.end()));
  if (!torch_times.empty()) {
    std::printf(" %10.2f %10.2f", Median(torch_times), Median(torch_ratios));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  int64_t elements = 1 << 24;
  int rounds = 7;
  std::string python;
  CLI::App app("Times updates of parameters beside copies and PyTorch");
  app.add_option("--elements", elements)->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  app.add_option("--python", python);
  CLI11_PARSE(app, argc, argv);
  std::printf("%-24s %10s %10s %10s %10s %10s\n", "update", "ms", "/ copy", "best", "PyTorch ms",
              "time");
  using weft::DType;
  for (const auto offload : {weft::Offload::kFull, weft::Offload::kStates}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const char* type : {"adam", "adamw", "lamb", "momentum"}) {
        weft::Measure(type, dtype, offload, elements, rounds, python);
      }
    }
  }
}
