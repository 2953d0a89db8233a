// Starts programs as mpirun would, with one difference: the test says which ranks, and what happens to them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace heddle {

class RankProcesses {
 public:
  struct End {
    int code = 0;  // exit code, or 128 + signal
    std::string output;
    std::string error;
  };

  // Of a job of its own, which has that many ranks.
  explicit RankProcesses(int world_size);
  ~RankProcesses();  // kills what still runs

  const std::string& job_key() const { return job_key_; }

  // Starts that rank, of `world_size` ranks where that differs from the job's; returns its process.
  pid_t start(int rank, const std::vector<std::string>& command, int world_size = 0);
  // Returns when the process has written its first line.
  void wait_for_line(pid_t process);
  // Returns when the process has ended.
  End end(pid_t process);

 private:
  struct Process {
    int output;
    int error;
    std::string read;
  };

  int world_size_;
  std::string job_key_;
  std::map<pid_t, Process> processes_;
};

}  // namespace heddle
