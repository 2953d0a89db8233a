// The flags that mpirun needs here, so that nobody has to know them.
#pragma once

#include <string>
#include <vector>

namespace heddle {

struct LaunchOptions {
  int num_ranks = 1;
  std::string hosts;      // "a,b:2": names with their numbers of slots; "": this machine
  std::string interface;  // "eth0" or "10.0.0.0/24": where ranks reach each other; "": mpirun finds out
  bool recovery = true;   // mpirun learns of a rank's death when the others have had time to name it
  std::vector<std::string> command;
};

// What the command depends on beside the options.
struct LaunchSurroundings {
  std::string mpirun;   // its path
  std::string program;  // this program's path
  bool root = false;
  bool have_osc_choice = false;               // OMPI_MCA_osc or OMPI_MCA_btl is set: the user has chosen
  std::vector<std::string> heddle_variables;  // names of HEDDLE_... in the environment
};

// The words of the command, the first being mpirun's path. COMMAND "heddle" stands for this very program.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const LaunchSurroundings& surroundings);

// As a line that a shell reads as these words.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace heddle
