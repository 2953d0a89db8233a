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
// shown (mpirun_words.h). SIGINT asks the ranks to end, where they take kInterruptRanks; a second one within two seconds,
// or where they do not, has mpirun kill them; so do SIGTERM and SIGHUP five seconds after they asked. Such a run ends with
// 128 + signal and one sentence. A run of which a rank has failed, and which mpirun does not end within fifteen seconds, as
// when a machine cannot be reached any more, is killed, too, and ends with 1. Throws Failure when a process cannot be started.
int supervise(std::vector<std::string> words, bool ranks_take_interrupts);

}  // namespace heddle
