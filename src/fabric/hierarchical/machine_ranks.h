// How many ranks of this machine stand for a machine.
#pragma once

namespace heddle {

// HEDDLE_MACHINE_RANKS=N lets each N of the `here` ranks of this machine stand for one, the last of which may have fewer:
// ranks of different such machines reach each other as those of real ones do. Without it, or with more than there are: all.
// Throws InputError where it is no number from 1 on.
int machine_ranks(int here);

}  // namespace heddle
