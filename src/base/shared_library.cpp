#include "base/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include "base/error.h"

namespace heddle {

SharedLibrary::SharedLibrary(std::string name, std::initializer_list<std::string> files) : name_(std::move(name)) {
  std::string why;
  for (const std::string& file : files) {
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return;
    if (why.empty()) why = dlerror();
  }
  throw_error<Failure>("{} is needed and was not found ({}): put its folder into LD_LIBRARY_PATH", name_, why);
}

void* SharedLibrary::address_of(const char* symbol) const {
  void* const address = dlsym(library_, symbol);
  if (address == nullptr) throw_error<Failure>("{}: the library has no {}", name_, symbol);
  return address;
}

}  // namespace heddle
