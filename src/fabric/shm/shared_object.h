// A POSIX shared memory object by whose name the processes of a run find each other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

// An open file.
class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  OpenFile(OpenFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~OpenFile();

  int number() const { return number_; }

 private:
  int number_;
};

// Allocates the pages of a part of the file now. Throws Failure that names `what` it was for.
void reserve(const OpenFile& file, std::size_t offset, std::size_t size_bytes, const std::string& what);

// An open shared memory object and its name. The destructor removes the name if the object still has it, so that
// nothing is left behind.
class SharedObject {
 public:
  // Empty if the name exists already. Throws Failure when there is no space for it.
  static std::optional<SharedObject> create(const std::string& name, std::size_t size_bytes);
  // Empty if there is none, or it does not have its size yet. Throws Failure if it may not be opened.
  static std::optional<SharedObject> open(const std::string& name, std::size_t size_bytes);

  SharedObject(SharedObject&& other) noexcept = default;
  SharedObject& operator=(SharedObject&& other) = delete;
  ~SharedObject() { remove_name(); }

  int file() const { return file_.number(); }
  void remove_name();
  // Leaves the name for others to remove.
  void keep_name() { name_.clear(); }

 private:
  SharedObject(std::string name, OpenFile file) : name_(std::move(name)), file_(std::move(file)) {}

  std::string name_;  // "" once it is removed or left
  OpenFile file_;
};

}  // namespace heddle
