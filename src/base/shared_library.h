// A shared library that is loaded when it is first needed: the program starts without it.
#pragma once

#include <initializer_list>
#include <string>

namespace heddle {

// A view: the library stays loaded until the process ends.
class SharedLibrary {
 public:
  // Loads the first of `files` that the system finds. `name` is for errors, "NCCL 2.28.9". Throws Failure that names it
  // and says why the first file was not loaded.
  SharedLibrary(std::string name, std::initializer_list<std::string> files);

  // Sets `function` to the library's function of that name. Throws Failure when it has none.
  template <class Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;

  std::string name_;
  void* library_ = nullptr;
};

}  // namespace heddle
