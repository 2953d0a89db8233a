// Runs mpirun for `heddle launch`.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace heddle {

// The signal by which mpirun's ranks are asked to end as by Ctrl-C: mpirun passes it on to all of them, on every machine,
// where by SIGINT it would kill them. `heddle launch --as-rank` makes SIGINT of it.
inline constexpr int kInterruptRanks = SIGUSR2;

// Runs the command of mpirun to its end and returns the run's exit status. Of its standard error the ranks' words are
// shown (mpirun_words.h). SIGINT, SIGTERM and SIGHUP end the run, with 128 + signal and one sentence; a run that lasts
// although a rank has failed is killed and ends with 1. Throws Failure when a process cannot be started.
int supervise(std::vector<std::string> words, bool ranks_take_interrupts);

}  // namespace heddle
