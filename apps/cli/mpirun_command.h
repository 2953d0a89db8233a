// The flags that mpirun needs here, so that users need not know them.
#pragma once

#include <string>
#include <vector>

namespace heddle {

struct LaunchOptions {
  int num_ranks = 1;
  std::string hosts;      // "a,b:2": names with their numbers of slots; "": this machine
  std::string interface;  // "eth0" or "10.0.0.0/24": the network between ranks; "": mpirun chooses
  bool recovery = true;   // delay a rank's end, so that the others can name it before mpirun ends them
  std::vector<std::string> command;
};

// Inputs of the command beside the options.
struct LaunchSurroundings {
  std::string mpirun;   // its path
  std::string program;  // this program's path
  bool root = false;
  bool have_osc_choice = false;               // OMPI_MCA_osc or OMPI_MCA_btl is set: the user has chosen
  std::vector<std::string> heddle_variables;  // names of HEDDLE_... in the environment
};

// The words of the command, beginning with mpirun's path. COMMAND "heddle" stands for this program.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const LaunchSurroundings& surroundings);

// Quotes the words as one line for a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace heddle
