// A rank computes by itself: nothing crosses ranks while this lives (ModelRank::alone). It ends where a step throws, too: a
// rank that stayed alone would be missing from the sums of all later steps.
#pragma once

namespace heddle {

class WhileAlone {
 public:
  explicit WhileAlone(bool& alone) : alone_(alone) { alone_ = true; }
  ~WhileAlone() { alone_ = false; }
  WhileAlone(const WhileAlone&) = delete;
  WhileAlone& operator=(const WhileAlone&) = delete;

 private:
  bool& alone_;
};

}  // namespace heddle
