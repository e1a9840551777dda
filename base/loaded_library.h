// Shared libraries that are loaded when they are used: neither the build nor the start needs them.
#ifndef WEFT_BASE_LOADED_LIBRARY_H_
#define WEFT_BASE_LOADED_LIBRARY_H_

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft {

// Loads the file, which the system finds as it finds libraries, and keeps it. `scope` is
// RTLD_LOCAL, or RTLD_GLOBAL for a library whose own plug-ins use its symbols. Unavailable, with
// the words of the loader and the advice, if it cannot be loaded.
inline absl::StatusOr<void*> LoadLibrary(const std::string& file, int scope,
                                         absl::string_view advice) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | scope);
  if (handle != nullptr) return handle;
  return absl::UnavailableError(absl::StrCat(dlerror(), "; ", advice));
}

// Sets the pointer to the symbol, which may be null. False if the library has no such symbol.
template <typename T>
bool FindSymbol(void* handle, const char* name, T** symbol) {
  // dlsym gives functions as pointers to void, which POSIX lets callers convert.
  void* const found = dlsym(handle, name);
  std::memcpy(symbol, &found, sizeof(found));
  return found != nullptr;
}

// What `load` makes of the file, once for each file if it succeeds. Thread-safe.
template <typename T>
absl::StatusOr<const T*> LoadOnce(const std::string& file,
                                  absl::StatusOr<std::unique_ptr<T>> (*load)(const std::string&)) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, std::unique_ptr<T>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<T>& library = (*loaded)[file];
  if (library == nullptr) {
    WEFT_ASSIGN_OR_RETURN(library, load(file));
  }
  return library.get();
}

}  // namespace weft

#endif  // WEFT_BASE_LOADED_LIBRARY_H_
