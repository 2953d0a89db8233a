#include "base/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

TEST(SharedLibrary, GivesTheFunctionsOfTheFirstFileThatIsThere) {
  const SharedLibrary library("the C library's mathematics", {"libheddle_is_nowhere.so.1", "libm.so.6"});
  double (*square_root)(double) = nullptr;
  library.find("sqrt", square_root);
  EXPECT_EQ(square_root(81), 9);
}

TEST(SharedLibrary, SaysWhatIsNeededAndWhyTheFirstFileWasNotLoaded) {
  EXPECT_THAT(
      [] {
        SharedLibrary("Nothing 3.1", {"libheddle_is_nowhere.so.1", "libneither.so"});
      },
      Throws<Failure>(Property(&Failure::what, testing::AllOf(HasSubstr("Nothing 3.1 is needed"),
                                                              HasSubstr("libheddle_is_nowhere.so.1: cannot"),
                                                              HasSubstr("LD_LIBRARY_PATH")))));
}

TEST(SharedLibrary, NamesAFunctionThatItDoesNotHave) {
  const SharedLibrary library("libm", {"libm.so.6"});
  int (*function)() = nullptr;
  EXPECT_THAT(
      [&] { library.find("heddle_has_no_such_function", function); },
      Throws<Failure>(Property(&Failure::what, HasSubstr("libm: the library has no heddle_has_no_such_function"))));
}

}  // namespace
}  // namespace heddle
