// How fast do kernels update parameters on the host, on one thread? Times updates, a copy of as
// many bytes read and written together, and PyTorch's fused optimizers, in turn, and prints medians
// of milliseconds and of the ratios within a round.
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:update_benchmark --
//       [--elements 16777216] [--rounds 7] [--python PYTHON]
//
// PyTorch is measured if --python names a Python that has it. It has no update of half-precision
// parameters by master weights.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
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

// An update, with its tensors.
class Update {
 public:
  // `is_half`: parameter and gradient in fp16, with a master weight.
  Update(const std::string& type, bool is_half, int64_t n)
      : n_(n),
        is_half_(is_half),
        param_(is_half ? Filled<Float16>(DType::kFloat16, n, 1) : Floats(n, 1)),
        grad_(is_half ? Filled<Float16>(DType::kFloat16, n, 0.5F) : Floats(n, 0.5F)),
        master_(Floats(is_half ? n : 1, 1)),
        first_(Floats(n, 0)) {
    SlotPointers inputs = {{"Param", {&param_}}, {"Grad", {&grad_}}, {"LearningRate", {&rate_}}};
    SlotPointers outputs = {{"ParamOut", {&param_}}};
    const auto state = [&](const std::string& slot, Tensor* tensor) {
      inputs.push_back({slot, {tensor}});
      outputs.push_back({slot + "Out", {tensor}});
    };
    if (is_half) state("MasterParam", &master_);
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
    if (type == "adamw") attrs = {{"with_decay", true}, {"coeff", 0.01F}};
    auto op = OpRunner::Make(type, inputs, attrs, outputs);
    Check(op.status());
    op_ = std::make_unique<OpRunner>(*std::move(op));
  }

  void Run() { Check(op_->Run()); }

  // Read and written: gradient once, parameter of half precision once, all others twice.
  int64_t bytes() const {
    const int64_t states = second_.allocated() ? 2 : 1;
    return n_ * (is_half_ ? 2 + 2 + 8 + 8 * states : 4 + 8 + 8 * states);
  }

 private:
  static void Check(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "update_benchmark: %s\n", status.ToString().c_str());
    std::exit(1);
  }

  const int64_t n_;
  const bool is_half_;
  Tensor param_, grad_, master_, first_, second_;
  Tensor rate_ = Floats(1, 1e-3F), power1_ = Floats(1, 0.9F), power2_ = Floats(1, 0.999F);
  std::unique_ptr<OpRunner> op_;
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

void Measure(const std::string& type, bool is_half, int64_t n, int rounds,
             const std::string& python) {
  Update update(type, is_half, n);
  const std::vector<char> from(update.bytes() / 2, 1);
  std::vector<char> to(from.size(), 2);
  std::vector<double> times, speeds, torch_times, torch_ratios;
  for (int round = 0; round < rounds; ++round) {
    const double copy = Milliseconds([&] { std::memcpy(to.data(), from.data(), to.size()); });
    const double weft = Milliseconds([&] { update.Run(); });
    times.push_back(weft);
    speeds.push_back(copy / weft);
    if (python.empty() || is_half) continue;
    torch_times.push_back(TorchMilliseconds(python, type, n));
    torch_ratios.push_back(weft / torch_times.back());
  }
  std::printf("%-24s %10.2f %10.2f", absl::StrCat(type, is_half ? ", fp16" : ", fp32").c_str(),
              Median(times), Median(speeds));
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
  std::printf("%-24s %10s %10s %10s %10s\n", "update", "ms", "/ copy", "PyTorch ms", "time");
  for (const bool is_half : {false, true}) {
    for (const char* type : {"adam", "adamw", "momentum"}) {
      weft::Measure(type, is_half, elements, rounds, python);
    }
  }
}
