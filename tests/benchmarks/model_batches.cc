#include "tests/benchmarks/model_batches.h"

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"

namespace weft {
namespace {

Tensor Repeated(const Tensor& tensor, int64_t rows) {
  Dims dims = tensor.dims();
  const size_t row = tensor.bytes() / dims[0];
  dims[0] = rows;
  Tensor repeated;
  repeated.Resize(tensor.dtype(), dims);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<char*>(repeated.raw()) + i * row,
                static_cast<const char*>(tensor.raw()) + i % tensor.dim(0) * row, row);
  }
  return repeated;
}

}  // namespace

FeedSource SameBatch(const std::string& folder, int64_t rows) {
  FeedSource source = ValueOrDie(FeedsFromFile(folder + "/feeds.npz"));
  std::vector<Tensor> batch;
  for (const Tensor& tensor : ValueOrDie(source.read(0))) batch.push_back(Repeated(tensor, rows));
  source.read = [batch](int64_t) -> absl::StatusOr<std::vector<Tensor>> { return batch; };
  source.types = nullptr;
  return source;
}

FeedSource RandomBatch(const Program& main, int64_t rows) {
  std::mt19937 random(1);
  FeedSource source;
  std::vector<Tensor> batch;
  for (VarId id : main.block(0).vars()) {
    const Var var = main.var(id);
    if (!var.need_check_feed()) continue;
    const absl::optional<pb::VarType::TensorDesc> type = var.Tensor();
    if (!type.has_value()) Die(absl::StrCat(var.name(), ": has no type"));
    Dims dims(type->dims().begin(), type->dims().end());
    dims[0] = rows;
    Tensor tensor;
    if (type->data_type() == pb::VarType::INT64) {
      tensor.Resize(DType::kInt64, dims);
      for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<int64_t>()[i] = random() % 2;
    } else {
      tensor.Resize(DType::kFloat32, dims);
      for (int64_t i = 0; i < tensor.size(); ++i) {
        tensor.data<float>()[i] = static_cast<float>(random()) * 0x1p-32F;
      }
    }
    source.variables.emplace_back(var.name());
    batch.push_back(std::move(tensor));
  }
  source.read = [batch](int64_t) -> absl::StatusOr<std::vector<Tensor>> { return batch; };
  return source;
}

void WriteFeeds(const FeedSource& source, int64_t steps, const std::string& path) {
  NpzWriter writer = ValueOrDie(NpzWriter::Create(path));
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) Die(std::string(status.message()));
  };
  for (int64_t step = 0; step < steps; ++step) {
    const std::vector<Tensor> batch = ValueOrDie(source.read(step));
    for (size_t i = 0; i < batch.size(); ++i) {
      check(writer.Add(absl::StrCat(step, "/", source.variables[i]), batch[i]));
    }
  }
  check(writer.Finish());
}

}  // namespace weft
