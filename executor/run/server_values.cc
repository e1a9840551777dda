#include "executor/run/server_values.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

std::string NameOfMemory(int server) { return absl::StrCat("@server_memory/", server); }

}  // namespace

std::string NameOfPart(int server, absl::string_view variable) {
  return absl::StrCat("@server/", server, "/", variable);
}

void AddMemory(int index, const ServerMemory& memory, std::map<std::string, Tensor>* values) {
  Tensor& numbers = (*values)[NameOfMemory(index)];
  numbers.Resize(DType::kInt64, {4});
  int64_t* const to = numbers.data<int64_t>();
  to[0] = memory.parameters;
  to[1] = memory.state;
  to[2] = memory.pushes;
  to[3] = memory.prefetched;
}

std::vector<ServerMemory> TakeMemory(int num_servers, std::map<std::string, Tensor>* values) {
  std::vector<ServerMemory> memories(num_servers);
  for (int server = 0; server < num_servers; ++server) {
    const auto found = values->find(NameOfMemory(server));
    if (found == values->end()) continue;
    const int64_t* const from = found->second.data<int64_t>();
    memories[server] = {from[0], from[1], from[2], from[3]};
    values->erase(found);
  }
  return memories;
}

absl::Status JoinParts(int num_servers, std::map<std::string, Tensor>* values) {
  std::map<std::string, std::vector<Tensor>> parts;
  for (int server = 0; server < num_servers; ++server) {
    const std::string prefix = NameOfPart(server, "");
    auto part = values->lower_bound(prefix);
    while (part != values->end() && absl::StartsWith(part->first, prefix)) {
      parts[part->first.substr(prefix.size())].push_back(std::move(part->second));
      part = values->erase(part);
    }
  }
  for (auto& [name, of] : parts) {
    Tensor& whole = (*values)[name];
    if (of.size() == 1) {
      whole = std::move(of[0]);
      continue;
    }
    Dims dims = of[0].dims();
    dims[0] = 0;
    for (const Tensor& part : of) dims[0] += part.dim(0);
    whole = Tensor();
    whole.Resize(of[0].dtype(), dims);
    char* to = static_cast<char*>(whole.raw());
    for (const Tensor& part : of) {
      if (part.bytes() > 0) std::memcpy(to, part.raw(), part.bytes());
      to += part.bytes();
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
