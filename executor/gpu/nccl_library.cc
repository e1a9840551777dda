#include "executor/gpu/nccl_library.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 21400;

// dlsym gives functions as pointers to void, which POSIX lets callers convert.
template <typename Function>
void Find(void* handle, const char* name, Function** function) {
  void* const symbol = dlsym(handle, name);
  std::memcpy(function, &symbol, sizeof(symbol));
}

absl::Status FindFunctions(void* handle, NcclLibrary* library) {
  std::string missing;
  const auto find = [&](const char* name, auto** function) {
    Find(handle, name, function);
    if (*function == nullptr && missing.empty()) missing = name;
  };
  find("ncclGetVersion", &library->GetVersion);
  find("ncclGetErrorString", &library->GetErrorString);
  find("ncclGetUniqueId", &library->GetUniqueId);
  find("ncclCommInitRankConfig", &library->CommInitRankConfig);
  find("ncclCommGetAsyncError", &library->CommGetAsyncError);
  find("ncclCommAbort", &library->CommAbort);
  find("ncclGroupStart", &library->GroupStart);
  find("ncclGroupEnd", &library->GroupEnd);
  find("ncclAllReduce", &library->AllReduce);
  find("ncclReduce", &library->Reduce);
  find("ncclReduceScatter", &library->ReduceScatter);
  find("ncclAllGather", &library->AllGather);
  find("ncclBroadcast", &library->Broadcast);
  find("ncclSend", &library->Send);
  find("ncclRecv", &library->Recv);
  Find(handle, "ncclCommRegister", &library->CommRegister);
  Find(handle, "ncclCommDeregister", &library->CommDeregister);
  int version = 0;
  if (library->GetVersion != nullptr) (void)library->GetVersion(&version);
  if (missing.empty() && version >= kOldestVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("expected NCCL 2.14 or later, found version code ",
                                             version, missing.empty() ? "" : " without ", missing));
}

absl::StatusOr<std::unique_ptr<NcclLibrary>> Load(const std::string& file) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat(dlerror(),
                                               "; install NCCL, or name its directory "
                                               "in LD_LIBRARY_PATH"));
  }
  auto library = std::make_unique<NcclLibrary>();
  const absl::Status status = FindFunctions(handle, library.get());
  if (status.ok()) return library;
  (void)dlclose(handle);
  return absl::UnavailableError(absl::StrCat(file, ": ", status.message()));
}

}  // namespace

absl::Status NcclLibrary::StatusOf(int result, absl::string_view call) const {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", GetErrorString(result)));
}

absl::StatusOr<const NcclLibrary*> LoadNccl(const std::string& file) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, std::unique_ptr<NcclLibrary>>();
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<NcclLibrary>& library = (*loaded)[file];
  if (library == nullptr) {
    WEFT_ASSIGN_OR_RETURN(library, Load(file));
  }
  return library.get();
}

}  // namespace weft
