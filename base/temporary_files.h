// Files and signals: what a signal removes before it ends the process, besides the files of
// AtomicFile, and what it waits for.
#ifndef WEFT_BASE_TEMPORARY_FILES_H_
#define WEFT_BASE_TEMPORARY_FILES_H_

#include <string>

namespace weft {

// From construction to destruction, RemoveTemporaryFiles (base/file.h) removes the file, too, if it
// is one of at most 64, and the path is not too long. The destructor removes nothing.
class RemovedOnSignal {
 public:
  explicit RemovedOnSignal(const std::string& path);
  ~RemovedOnSignal();
  RemovedOnSignal(const RemovedOnSignal&) = delete;
  RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;

 private:
  const int slot_;
};

// Of the handler of a signal that would end the process: whether the signal waits, because files
// that change together are being replaced (AtomicFile::Replace, until Keep). It is raised again
// when they are. Async-signal-safe.
bool HoldSignal(int signal);

}  // namespace weft

#endif  // WEFT_BASE_TEMPORARY_FILES_H_
