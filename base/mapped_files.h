// Files that are mapped into memory, and that somebody shortens meanwhile.
#ifndef WEFT_BASE_MAPPED_FILES_H_
#define WEFT_BASE_MAPPED_FILES_H_

#include <cstddef>
#include <string>

namespace weft {

// Remembers, for ReportShrunkFiles, that the file is mapped there; at most 256 files at a time, and
// as much of the path as is needed for a message.
class MappedFile {
 public:
  MappedFile(const std::string& path, const void* begin, size_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

 private:
  int slot_;  // -1: there was none
};

// From this call on, reading a page that a mapped file has lost ends the process with exit status 1
// and "COMMAND: error: PATH: has changed while it was read", and removes temporary files of
// outputs. The system would end it by SIGBUS.
void ReportShrunkFiles(const std::string& command);

}  // namespace weft

#endif  // WEFT_BASE_MAPPED_FILES_H_
