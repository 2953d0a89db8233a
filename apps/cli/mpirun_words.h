// What mpirun says beside the ranks: banners that bury the cause, which a rank has named.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace heddle {

// The line by which `heddle launch --as-rank` tells `heddle launch` so, on whatever machine it runs. mpirun says nothing
// before all processes have ended.
inline constexpr std::string_view kRankFailed = "heddle launch: a rank has failed\n";

// Reads standard error of mpirun, which has the ranks' lines and its own, as it comes.
class MpirunWords {
 public:
  // Returns what of it to show now. A banner about the end of a rank is set aside, whatever ranks say within it is not;
  // an error that another rank has said already is left out. A line that is not complete is kept for flush().
  std::string add(std::string_view bytes);

  // Nothing has come for a while: what is kept and is no banner.
  std::string flush();

  // The ranks are asked to end: from now on nobody is told that one has.
  void expect_ends() { ends_expected_ = true; }

  // mpirun is told to kill them, of which it says much: from now on lines of ranks of Heddle alone are shown.
  void expect_kills() { kills_expected_ = true; }

  // Whether a rank's process has said that its command has failed (kRankFailed). Such lines are not shown.
  bool rank_failed() const { return rank_failed_; }

  // Whether a rank has said that it was interrupted.
  bool said_interrupted() const { return said_interrupted_; }

  // At the end. Banners are returned where no rank has said a word ("heddle: ..."), for then they alone name the cause.
  std::string end();

 private:
  std::string take_line(std::string line);
  std::string pass(std::string line);

  std::string line_;     // that is not complete
  std::string block_;    // between rules, from the first on; empty: outside
  std::string banners_;  // that were set aside
  bool ranks_spoke_ = false;
  bool ends_expected_ = false;
  bool kills_expected_ = false;
  bool said_interrupted_ = false;
  bool rank_failed_ = false;
  std::set<std::string> errors_;  // that were shown, without their ranks
};

}  // namespace heddle
