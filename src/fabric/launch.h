// What mpirun passes to each process that it starts, for any fabric.
#pragma once

#include <string>

#include "base/function_ref.h"

namespace heddle {

struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;       // among the run's ranks on this machine
  int num_local_ranks = 1;  // world_size where all ranks share one machine

  // The same on all ranks of a run, and of no other run's; letters, digits, '.', '-' and '_', at most 128 of them: fit
  // for a file's name.
  std::string job_key;

  bool on_one_machine() const { return num_local_ranks == world_size; }
};

// Whether mpirun has started this process.
bool started_by_mpirun();

// Reads the environment. Throws InputError when this process was not started by mpirun ("not started by mpirun: use
// `heddle launch -n N -- COMMAND`", naming the missing variable) or when a variable holds no valid number.
Launch read_launch();

// An inherited eventfd, by number, on which a rank tells `heddle launch --as-rank`, which has started it, that it has met
// the others. From then on these name it if it is killed; before, nobody else can.
inline constexpr const char* kMeetingVariable = "HEDDLE_MEETING_FD";

// Tells so. Does nothing in a process that no such launcher has started.
void tell_launcher_of_meeting();

// The same for another environment: variable(name) returns a value or null.
Launch read_launch(FunctionRef<const char*(const char*)> variable);

}  // namespace heddle
