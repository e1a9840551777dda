#include "executor/servers/wanted_rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

int64_t IdAt(const Tensor& ids, int64_t i) {
  return ids.dtype() == DType::kInt32 ? ids.data<int32_t>()[i] : ids.data<int64_t>()[i];
}

}  // namespace

absl::Status CheckIds(const ServedKey& table, const Tensor& ids, bool zeros_out_of_range) {
  if (ids.dtype() != DType::kInt64 && ids.dtype() != DType::kInt32) {
    return absl::InvalidArgumentError(
        absl::StrCat("input Ids: expected int64 or int32, found ", DTypeName(ids.dtype())));
  }
  if (zeros_out_of_range) return absl::OkStatus();
  const int64_t num_rows = table.type.dims[0];
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = IdAt(ids, i);
    if (id >= 0 && id < num_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("input Ids: ", id, " at position ", i,
                                                   " is not in [0, ", num_rows, "), the rows of ",
                                                   table.param));
  }
  return absl::OkStatus();
}

WantedRows FindWantedRows(const ServedKey& table, const Tensor& ids, int64_t padding,
                          int num_servers) {
  const int64_t num_rows = table.type.dims[0];
  WantedRows wanted;
  wanted.of_server.resize(num_servers);
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = IdAt(ids, i);
    if (id == padding || id < 0 || id >= num_rows) continue;
    const int server = ServerOfRow(id, num_rows, num_servers);
    std::vector<int64_t>& rows = wanted.of_server[server];
    const auto place = std::make_pair(server, static_cast<int64_t>(rows.size()));
    if (!wanted.places.emplace(id, place).second) continue;
    rows.push_back(id - RowsOfServer(num_rows, server, num_servers).begin);
  }
  return wanted;
}

absl::Status CopyWantedRows(const ServedKey& table, const WantedRows& wanted,
                            const std::vector<Tensor>& rows, const Tensor& ids, int64_t padding,
                            Tensor* out) {
  const size_t row_bytes = table.type.dims[1] * SizeOf(table.type.dtype);
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = IdAt(ids, i);
    char* const to = static_cast<char*>(out->raw()) + i * row_bytes;
    if (id == padding || id < 0 || id >= table.type.dims[0]) {
      std::memset(to, 0, row_bytes);
      continue;
    }
    const auto place = wanted.places.find(id);
    if (place == wanted.places.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input Ids: expected the ids that are fed, by which rows were prefetched in the "
          "step before, found ",
          id, " at position ", i));
    }
    const auto& [server, position] = place->second;
    std::memcpy(to, static_cast<const char*>(rows[server].raw()) + position * row_bytes, row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace weft
